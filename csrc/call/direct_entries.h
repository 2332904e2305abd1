/* The entries of a Direct: finds the entry that a call matches, and learns new ones. */
#pragma once

#include "base/common.h"
#include "call/direct_entry.h"

#define FJ_DIRECT_ENTRIES 4 /* the most learned entries */
#define FJ_IN_VAIN 16       /* calls in vain before calls rest */
#define FJ_PAID 4           /* direct calls that pay for one in vain */

/* Locked by their Direct. */
typedef struct {
    PyObject *why_no_plan; /* a str, why there was no plan the last time; or NULL */
    FjDirectEntry **items; /* most recently used first */
    int count;
    int learns;         /* else entries are only added (fj_direct_entries_add) */
    Py_ssize_t telling; /* the argument that tells added entries apart best */
    Py_ssize_t rest;    /* calls to pass on without comparing them; -1 for `context->after` */
    int route;          /* ... and their route: why the last comparison was in vain */
    int in_vain; /* calls that were compared in vain, times FJ_PAID, less direct calls */
    unsigned long long epoch;
} FjDirectEntries;

void fj_direct_entries_init(FjDirectEntries *entries, const FjDirectContext *context,
                            int learns);

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
