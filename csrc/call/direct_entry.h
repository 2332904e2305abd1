/* What is true of some calls, and the executable for them: an entry of a Direct.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "call/direct_argument.h"

/* What is true of some calls, and their plan.  Each call that uses it holds a reference.  The
 * Direct is locked while an entry is used, but for fj_direct_entry_run: the plan never
 * changes.
 */
typedef struct {
    Py_ssize_t references;
    int has_run;             /* jax.jit has made such a call, */
    int is_kept;             /* or its program was kept, and is never dropped for another */
    Py_ssize_t trace;        /* the number of the trace whose program ran then */
    PyObject *configuration; /* tuple */
    PyObject **settings;     /* their values */
    Py_ssize_t num_settings;
    Py_ssize_t num_arguments;
    FjDirectArgument *arguments;
    /* The plan. */
    PyObject *execute;    /* tuple of arrays -> results; NULL until there is a plan */
    PyObject *handlers;   /* list */
    PyObject *constants;  /* tuple: arrays that are passed before the arguments */
    Py_ssize_t num_read;  /* how many arguments the program reads, */
    Py_ssize_t num_other; /* and how many of these are no arrays: keys, or the host's */
    int checks_deleted;   /* a failed run must not be counted by other processes */
    /* Which arguments are results of the call before is learned in the first calls. */
    int lessons;
    Py_ssize_t num_fed;   /* how many arguments have a `result` */
    const void **results; /* addresses of the last results */
    Py_ssize_t num_results;
} FjDirectEntry;

/* (P) An entry, without a plan, for calls that are like this one; NULL with an error. */
FjDirectEntry *fj_direct_entry_new(const FjDirectContext *context, PyObject *configuration,
                                   PyObject *const *args, Py_ssize_t nargs);

/* Gives an entry its plan: (execute, handlers, constants, flags, trace, checks_deleted, puts),
 * where `flags` has a byte for each argument: 1 if the program reads it, plus 2 if its layout
 * matters; and `puts` has (aval, sharding, devices) for each value in the host's memory that
 * the program reads, in order.  Without `execute` after it, an error is set. */
void fj_direct_entry_set_plan(FjDirectEntry *entry, PyObject *plan);

/* (P) Drops a reference of a call, or of the Direct.  An exception that is set stays. */
void fj_direct_entry_release(FjDirectEntry *entry);

int fj_direct_entry_traverse(FjDirectEntry *entry, visitproc visit, void *arg);

/* What it has taken to compare a call with an entry. */
typedef struct {
    Py_ssize_t checked;  /* arrays that were not known */
    Py_ssize_t compared; /* shardings that were compared by equality */
} FjDirectEffort;

/* (P) Whether a call agrees with an entry: FJ_WAY_direct, another way, or -1 with an error
 * that is no Exception. */
int fj_direct_entry_matches(FjDirectEntry *entry, const FjDirectContext *context,
                            PyObject *configuration, PyObject *const *args, Py_ssize_t nargs,
                            FjDirectEffort *effort);

/* (P) Runs the program of an entry, for arguments that agree with it: a new tuple of results,
 * or NULL with an error.  `*began` says whether the device has begun.
 * `*ran` is what the executable took, in nanoseconds, if it is timed. */
PyObject *fj_direct_entry_run(const FjDirectEntry *entry, const FjDirectContext *context,
                              PyObject *const *args, int *began, unsigned long long *ran);

/* Whether the results of a call are of use to the next. */
static inline int
fj_direct_entry_learns(const FjDirectEntry *entry)
{
    return FJ_LOAD_INT(entry->lessons) != 0 || FJ_LOAD_SIZE(entry->num_fed) != 0;
}

/* (P) Remembers what the results of a call are, which may be arguments of the next.  0, or -1
 * with an error that is no Exception. */
int fj_direct_entry_remember(FjDirectEntry *entry, const FjDirectContext *context,
                             PyObject *results);
