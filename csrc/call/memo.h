/* A memo of a variant's largest argument.  If the same object is passed again, unchanged, the
 * memo gives its arrays without a walk.  The head of memo.c proves that this is exact,
 * although a memo holds no reference.
 *
 * Nothing in this file runs Python code. */
#ifndef FJ_MEMO_H
#define FJ_MEMO_H

#include "base/common.h"
#include "structure/structure.h"
#include "walk/match.h"

typedef struct FjMemo FjMemo;

/* A walk of fewer nodes takes no longer than a check of their memo. */
#define FJ_MEMO_MIN_NODES 64

/* The memo's argument and its arrays, if that argument is among `arguments` and has not
 * changed; else NULL.  The result is borrowed, and valid until the memo is used again. */
const FjCapture *fj_memo_check(FjMemo *memo, FjStructure *structure,
                               PyObject *const *arguments);

/* Is called after each walk of arguments that have matched the Structure, which has at least
 * FJ_MEMO_MIN_NODES nodes.  If the largest argument has been the same object for several calls
 * in a row, takes a snapshot of it.  `*memo` is NULL at first.  Never fails: if there is no
 * memory, there is no snapshot. */
void fj_memo_update(FjMemo **memo, FjStructure *structure, PyObject *const *arguments);

void fj_memo_free(FjMemo *memo);

#endif
