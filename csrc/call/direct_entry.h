/* An entry of a Direct: facts about some calls, and an executable for them. */
#pragma once

#include "base/common.h"
#include "call/direct_argument.h"

/* Each call that uses an entry holds a reference.  The Direct is locked while an entry is
 * used, except in fj_direct_entry_run: the plan never changes. */
typedef struct {
    Py_ssize_t references;
    int has_run;             /* jax.jit has made such a call */
    Py_ssize_t trace;        /* the trace whose program ran then */
    PyObject *configuration; /* tuple */
    PyObject *settings;      /* tuple of the values of the context's settings */
    Py_ssize_t num_arguments;
    FjDirectArgument *arguments;
    /* The plan. */
    PyObject *execute;    /* tuple of arrays -> results; NULL without a plan */
    PyObject *handlers;   /* list */
    PyObject *constants;  /* tuple of captured arrays: the first inputs */
    Py_ssize_t num_read;  /* number of arguments that the program reads */
    Py_ssize_t num_other; /* ... and of these, number of keys and host values */
    int checks_deleted;   /* other processes run it too: check for deleted arrays */
    /* The first calls show which arguments are results of the previous call. */
    int learning_calls;
    Py_ssize_t num_results_passed; /* number of arguments with a `result` */
    const void **results;          /* addresses of the last results */
    Py_ssize_t num_results;
} FjDirectEntry;

/* (P) Returns an entry for calls like this one, without a plan. */
FjDirectEntry *fj_direct_entry_new(const FjDirectContext *context, PyObject *configuration,
                                   PyObject *const *args, Py_ssize_t nargs);

/* Sets an entry's plan: a dict with `execute`, `handlers`, `constants`, `flags`, `trace`,
 * `checks_deleted` and `puts`, which nothing else changes.  `flags` has a byte per argument: 1
 * if the program reads it, plus 2 if its layout matters.  `puts` has (aval, sharding, devices)
 * for each host value that the program reads, in order. 0 (also if the entry has a plan by
 * this time), or -1 with an error and no plan. */
int fj_direct_entry_set_plan(FjDirectEntry *entry, PyObject *plan);

/* (P) Drops a reference.  Keeps the current exception, if any. */
void fj_direct_entry_release(FjDirectEntry *entry);

int fj_direct_entry_traverse(FjDirectEntry *entry, visitproc visit, void *arg);

/* The cost of comparing a call with entries. */
typedef struct {
    Py_ssize_t checked;  /* arrays that weren't known */
    Py_ssize_t compared; /* shardings compared by == */
} FjDirectEffort;

/* (P) Compares a call with an entry.  Returns a route.  -1: an error that isn't an Exception.
 */
int fj_direct_entry_matches(FjDirectEntry *entry, const FjDirectContext *context,
                            PyObject *configuration, PyObject *const *args, Py_ssize_t nargs,
                            FjDirectEffort *effort);

/* (P) Runs an entry's program for matching arguments.  Returns a tuple of results.  `*began`:
 * the device has started.  `*ran`: the executable's nanoseconds, if timed. */
PyObject *fj_direct_entry_run(const FjDirectEntry *entry, const FjDirectContext *context,
                              PyObject *const *args, int *began, unsigned long long *ran);

/* True if the results of a call help to check the next call. */
static inline int
fj_direct_entry_tracks_results(const FjDirectEntry *entry)
{
    return FJ_LOAD_INT(entry->learning_calls) != 0 ||
           FJ_LOAD_SIZE(entry->num_results_passed) != 0;
}

/* (P) Remembers results, arguments of the next call.  -1: an error that isn't an Exception. */
int fj_direct_entry_remember(FjDirectEntry *entry, const FjDirectContext *context,
                             PyObject *results);
