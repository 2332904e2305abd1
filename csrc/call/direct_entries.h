/* The entries of a Direct: finds the entry that a call matches, and learns new ones. */
#pragma once

#include "base/common.h"
#include "call/direct_entry.h"

#define FJ_DIRECT_ENTRIES 4 /* the most learned entries */

/* Locked by their Direct. */
typedef struct {
    PyObject *refusal;     /* a str, why there was no plan the last time; or NULL */
    FjDirectEntry **items; /* most recently used first */
    int count;
    int is_fixed;           /* entries are only added (fj_direct_entries_add) */
    Py_ssize_t telling;     /* the argument that tells fixed entries apart best */
    int num_recorded;       /* calls recorded as entries */
    Py_ssize_t unmatched;   /* calls without an entry since the last recorded one */
    Py_ssize_t record_at;   /* the value of `unmatched` at which a call is recorded; -1 for
                             * `context->after` */
    unsigned wasted_checks; /* checks in a row that were slow and in vain */
    unsigned paused_calls;  /* number of calls to pass on without a check */
    unsigned long long epoch;
} FjDirectEntries;

void fj_direct_entries_init(FjDirectEntries *entries, const FjDirectContext *context,
                            int is_fixed);

/* (P) */
void fj_direct_entries_drop(FjDirectEntries *entries);

int fj_direct_entries_traverse(FjDirectEntries *entries, visitproc visit, void *arg);

/* (P) Adds an entry for calls like this one, with its plan.  0, or -1 with an error. */
int fj_direct_entries_add(FjDirectEntries *entries, FjDirectContext *context, PyObject *plan,
                          PyObject *const *args, Py_ssize_t nargs);

/* (P) Chooses the route of a call, or -1 with an error that isn't an Exception.  `source` is
 * for FJ_PLAN.  If `*found` is set (owned), run it (FJ_ROUTE_direct) or record jax.jit's call
 * in it.
 */
int fj_direct_entries_choose(FjDirectEntries *entries, FjDirectContext *context,
                             PyObject *source, PyObject *const *args, Py_ssize_t nargs,
                             FjDirectEntry **found);
