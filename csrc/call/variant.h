/* A variant: the compiled callable of one static structure, and what its traces returned.
 *
 * The callable takes nothing but arrays, those in the function itself before those in the
 * arguments, and returns an Output: the arrays of the result, and the number of the trace that
 * they come from.  The trace's Structure turns the arrays into the user's tree.  A variant has
 * several traces if JAX traces it again, for arrays of other shapes or dtypes, and then each
 * trace may return a tree of another Structure.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "structure/structure.h"
#include "walk/known.h"

/* Whether a program can raise while it runs: then a call waits for it. */
typedef enum {
    FJ_MAY_RAISE_UNKNOWN = -1, /* not inspected yet */
    FJ_MAY_RAISE_NO = 0,
    FJ_MAY_RAISE_YES = 1
} FjMayRaise;

/* What hits took while they were timed, in nanoseconds, and how many there were. */
typedef struct {
    unsigned long long hits;   /* all timed hits, */
    unsigned long long hit;    /* and what they took until they returned, without waiting */
    unsigned long long waited; /* what they waited for programs that can raise */
    unsigned long long runs;   /* those that were direct calls, */
    unsigned long long around; /* what these took, without waiting, */
    unsigned long long ran;    /* and their executables in that */
} FjTimes;

/* Adds a hit that took `taken`; `ran` is 0 if its executable was not timed. */
static inline void
fj_times_add(FjTimes *times, unsigned long long taken, unsigned long long waited,
             unsigned long long ran)
{
    (void)FJ_ADD(times->hits, 1);
    (void)FJ_ADD(times->hit, taken);
    (void)FJ_ADD(times->waited, waited);
    (void)FJ_ADD(times->runs, ran > 0);
    (void)FJ_ADD(times->around, ran > 0 ? taken : 0);
    (void)FJ_ADD(times->ran, ran);
}

/* A new tuple of the fields, or NULL with an error.  The getter takes their offset. */
PyObject *fj_times_as_tuple(const FjTimes *times);
PyObject *fj_times_get(PyObject *object, void *offset);

/* What one trace returned.  The program of a trace without array results returns one array
 * that the Structure does not have, so that a call can wait for it. */
typedef struct {
    FjStructure *structure; /* owned */
    int may_raise;          /* an FjMayRaise */
} FjTrace;

typedef struct {
    PyObject_HEAD FjStructure *function; /* Structure of the function itself */
    FjStructure *structure;              /* Structure of the arguments */
    PyObject *call;                      /* NULL until compiled */
    FjTrace *traces;                     /* only ever appended to: `num_traces` of them can
                                          * be read without a lock */
    Py_ssize_t num_traces;
    Py_ssize_t traces_capacity;
    uint64_t last_used;      /* the Cache's clock then */
    Py_ssize_t next_variant; /* which variant was called after this one the last time: 0 for
                              * this one itself, else one more than its position in the
                              * Cache's table */
    FjTimes times;
    int ran;          /* a call of it has returned and there was no trace, which happens under
                       * jax.disable_jit */
    int in_cache;     /* the Cache's table contains it */
    int evicted;      /* the Cache has dropped it for good: it is never predicted */
    int call_was_set; /* Python has set `call`: it is asked when a call fails */
    int run_by_hook;  /* it has no trace yet, or one that can raise: the `run` hook makes the
                       * calls */
    PyObject *record; /* what a listener keeps of it, or NULL */
    PyObject *programs; /* the Programs of the package _call, or NULL */
    PyObject *weakrefs;
    FjCount hits;
    FjKnownArguments *known[FJ_LANES][FJ_LANE_WORDS]; /* of each lane, of earlier arguments, or
                                                       * NULL */
} FjVariant;

/* Whether the Cache keeps the variant, and counts it: it has been traced to the end, or it has
 * run without a trace. */
static inline int
fj_variant_is_kept(const FjVariant *variant)
{
    return FJ_LOAD_SIZE(variant->num_traces) > 0 || FJ_LOAD_INT(variant->ran);
}

/* NULL with the error of a call of a variant that the garbage collector has cleared. */
PyObject *fj_variant_is_freed(void);

/* A new variant without a callable, or NULL with an error. */
FjVariant *fj_variant_new(FjState *state, FjStructure *function, FjStructure *structure);

/* Whether the program of a trace can raise while it runs. */
static inline FjMayRaise
fj_variant_trace_may_raise(const FjVariant *variant, Py_ssize_t trace)
{
    const FjTrace *traces = FJ_LOAD_POINTER(variant->traces);
    return (FjMayRaise)FJ_LOAD_INT(traces[trace].may_raise);
}

/* Adds a trace that returned `structure`.  Its number, or -1 with MemoryError. */
Py_ssize_t fj_variant_add_trace(FjVariant *variant, FjStructure *structure,
                                FjMayRaise may_raise);

/* ---- Output ---- */

/* An Output: what the callable of a variant returns.  To JAX it is a pytree node,
 * whose children are the arrays and whose aux data is the number of the trace.  JAX's caches
 * live long and hold aux data, so this way they hold an int and no reference to objects of the
 * user's. */
typedef struct {
    PyObject_HEAD PyObject *arrays; /* tuple */
    FjVariant *variant;             /* NULL in one that JAX has unflattened */
    FjStructure *structure;         /* NULL in one that JAX has unflattened */
    PyObject *given_trace;     /* what JAX has unflattened it with if that was of a subclass
                                * of int: see ANY_TRACE in _shardings/_sharded_call.py; or NULL */
    Py_ssize_t trace;          /* -1 until JAX flattens it */
    unsigned long long ran;    /* nanoseconds of the executable, 0 if it was not timed */
    unsigned long long waited; /* nanoseconds for which a program that can raise was awaited */
} FjOutput;

/* The Structure of what this variant's callable returned, borrowed from the one or the other.
 * NULL with an error if it is no Output, or does not belong to this variant. */
FjStructure *fj_variant_output_structure(const FjVariant *variant, PyObject *output);

/* An Output of a tuple of arrays, as JAX unflattens it: without a variant and a Structure.
 * `arrays` is stolen; NULL is an error that is passed on.  NULL with an error. */
PyObject *fj_output_new(FjState *state, PyObject *arrays, Py_ssize_t trace);

/* Module functions: how JAX flattens and unflattens an Output. */
PyObject *fj_output_flatten(PyObject *module, PyObject *output);
PyObject *fj_output_unflatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
