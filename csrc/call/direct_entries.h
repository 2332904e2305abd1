/* The entries of a Direct: finding the one that a call agrees with, and learning new ones.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "call/direct_entry.h"

#define FJ_DIRECT_ENTRIES 4 /* that are learned */

/* The Direct that has them locks them. */
typedef struct {
    PyObject *refusal;     /* why there was no plan the last time, a str, or NULL */
    FjDirectEntry **items; /* the one that was used last comes first */
    int count;
    int capacity;
    int num_kept;         /* items that are kept: calls that agree with one are not traced */
    int num_noted;        /* calls that were noted */
    Py_ssize_t unmatched; /* calls that no entry was for, since one was noted */
    Py_ssize_t note_at;   /* one is noted when there are so many; -1 for `context->after` */
    unsigned strikes;     /* checks in a row that took long and were in vain */
    unsigned resting;     /* so many calls are passed on without a check */
    unsigned long long epoch;
} FjDirectEntries;

/* Starts without entries. */
void fj_direct_entries_init(FjDirectEntries *entries, const FjDirectContext *context);

/* (P) Forgets all calls. */
void fj_direct_entries_drop(FjDirectEntries *entries);

int fj_direct_entries_traverse(FjDirectEntries *entries, visitproc visit, void *arg);

/* (P) Makes an entry of a program that was kept the first, for calls that are like this one: a
 * new reference, or NULL with an error. */
FjDirectEntry *fj_direct_entries_keep(FjDirectEntries *entries, FjDirectContext *context,
                                      PyObject *plan, PyObject *const *args, Py_ssize_t nargs);

/* (P) Chooses the way of a call.  `source` is what a plan is made from.  If the way is
 * FJ_WAY_direct, or jax.jit is to be observed, `*found` is an entry (new reference).  -1 with
 * an error that is no Exception. */
int fj_direct_entries_choose(FjDirectEntries *entries, FjDirectContext *context,
                             PyObject *source, PyObject *const *args, Py_ssize_t nargs,
                             FjDirectEntry **found);
