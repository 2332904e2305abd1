/* A memo of a variant's large arguments.  If the same object is passed again, unchanged, the
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

/* The number of arguments that a memo remembers. */
#define FJ_MEMO_ARGUMENTS 4

/* Those of the memo's arguments that are among `arguments` and have not changed, `*count` of
 * them.  The result is borrowed, and valid until the memo is used again or Python code runs.
 */
const FjCapture *fj_memo_check(FjMemo *memo, FjStructure *structure,
                               PyObject *const *arguments, Py_ssize_t *count);

/* Whether a check that has found `count` arguments has found all that the memo remembers. */
int fj_memo_is_full(const FjMemo *memo, Py_ssize_t count);

/* Is called after each walk of arguments that have matched the Structure, which has at least
 * FJ_MEMO_MIN_NODES nodes, unless the check has found all.  Takes a snapshot of each large
 * argument that has been the same object for several calls in a row.  `*memo` is NULL at
 * first.  Never fails: if there is no memory, there is no snapshot. */
void fj_memo_update(FjMemo **memo, FjStructure *structure, PyObject *const *arguments);

void fj_memo_free(FjMemo *memo);

#endif
