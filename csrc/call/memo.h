/* The large argument of a variant, remembered: where it comes in again unchanged, its arrays
 * are known without a walk.  memo.c says how that can be exact without holding anything. */
#ifndef FJ_MEMO_H
#define FJ_MEMO_H

#include "base/common.h"
#include "walk/match.h"
#include "structure/structure.h"

typedef struct FjMemo FjMemo;

#define FJ_MEMO_WORTH 64 /* nodes; what has fewer is walked as fast */

/* The argument in `arguments` that is remembered, when it is there and as it was; else NULL.
 * What is returned holds until anything else is done with the memo.  Runs no Python code. */
const FjCapture *fj_memo_check(FjMemo *memo, FjStructure *structure,
                               PyObject *const *arguments);

/* Told of arguments that have just been matched with the Structure, which is worth a memo:
 * where the large argument is the one of the last time, remembers it.  `*memo` is NULL at
 * first. Never fails: without memory nothing is remembered.  Runs no Python code. */
void fj_memo_learn(FjMemo **memo, FjStructure *structure, PyObject *const *arguments);

void fj_memo_free(FjMemo *memo);

#endif
