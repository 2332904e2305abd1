/* A variant: the compiled callable of one static structure, and the results of its traces.
 *
 * The callable takes only arrays, the function's own before the arguments', and returns an
 * Output: the result's arrays and the number of the trace that produced them.  The trace's
 * Structure turns the arrays into the user's tree.  If JAX retraces a variant for other shapes
 * or dtypes, it gets several traces, and each can return a different Structure. */
#pragma once

#include "base/common.h"
#include "structure/structure.h"
#include "walk/known.h"

/* A program that contains checks, such as eqx.error_if, can raise while it runs.  A call waits
 * for it, and raises its error. */
typedef enum {
    FJ_MAY_RAISE_UNKNOWN = -1,
    FJ_MAY_RAISE_NO = 0,
    FJ_MAY_RAISE_YES = 1
} FjMayRaise;

/* Timed hits, in nanoseconds. */
typedef struct {
    unsigned long long hits;   /* number of timed hits */
    unsigned long long hit;    /* total until the return, without waiting */
    unsigned long long waited; /* total waiting for programs that can raise */
    unsigned long long runs;   /* number of direct calls among them */
    unsigned long long around; /* total of the direct calls, without waiting */
    unsigned long long ran;    /* total of their executables */
} FjTimes;

/* `ran` is 0 if the executable was not timed. */
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

/* Returns a new dict of the fields.  The getter's closure is the offset. */
PyObject *fj_times_as_dict(const FjTimes *times);
PyObject *fj_times_get(PyObject *object, void *offset);

/* The result of one trace.  If it contains no arrays, its program returns one array that the
 * Structure doesn't have, for calls to wait on. */
typedef struct {
    FjStructure *structure; /* owned */
    int may_raise;          /* an FjMayRaise */
} FjTrace;

/* The former, smaller block stays until the variant dies: other threads can be reading it. */
typedef struct FjTraces {
    struct FjTraces *former;
    FjTrace items[];
} FjTraces;

typedef struct {
    PyObject_HEAD FjStructure *function; /* of the function itself, e.g. a Module */
    FjStructure *structure;              /* of the arguments */
    PyObject *call;                      /* NULL until compiled */
    PyObject *former;                    /* list of the callables before a switch, or NULL:
                                          * calls that own the variant can be running them */
    FjTraces *traces;                    /* append-only: no lock is needed to read them */
    Py_ssize_t num_traces;
    Py_ssize_t traces_capacity;
    uint64_t last_used;      /* the Cache's clock at the last use */
    Py_ssize_t next_variant; /* the variant called next after this one's last call: 0 for this
                              * one, else 1 + its position in the Cache's table */
    FjTimes times;
    int ran;            /* a call returned without a trace, under jax.disable_jit */
    int evicted;        /* dropped by the Cache for good: never predicted */
    int was_switched;   /* _switch has replaced `call`: if a call fails, the `run` hook
                         * looks for a program that can make it */
    int run_by_hook;    /* no trace is inspected, or one can raise: the `run` hook calls it */
    PyObject *record;   /* a listener's data, or NULL */
    PyObject *programs; /* the Programs of the package _call, or NULL */
    PyObject *weakrefs;
    FjCount hits;
    FjKnownArguments *known[FJ_LANES][FJ_LANE_WORDS]; /* per lane */
} FjVariant;

/* True if the Cache counts it (cached): it was fully traced, or ran without a trace. */
static inline int
fj_variant_is_cached(const FjVariant *variant)
{
    return FJ_LOAD_SIZE(variant->num_traces) > 0 || FJ_LOAD_INT(variant->ran);
}

/* Raises: the garbage collector has cleared the called variant.  Always NULL. */
PyObject *fj_variant_is_freed(void);

/* Returns a variant without a callable. */
FjVariant *fj_variant_new(FjState *state, FjStructure *function, FjStructure *structure);

static inline FjMayRaise
fj_variant_trace_may_raise(const FjVariant *variant, Py_ssize_t trace)
{
    const FjTraces *traces = FJ_LOAD_POINTER(variant->traces);
    return (FjMayRaise)FJ_LOAD_INT(traces->items[trace].may_raise);
}

/* Adds a trace of a program compiled elsewhere.  Returns its number, or -1 with an error if
 * `structure` isn't a Structure that flatten() returned. */
Py_ssize_t fj_variant_add_output(FjVariant *variant, PyObject *structure,
                                 FjMayRaise may_raise);

/* True for the Structure of a function or a result: from fj_flatten_tree. */
static inline int
fj_variant_takes_structure(const FjStructure *structure)
{
    return !structure->is_tree_structure && structure->nodes[0].code != FJ_ARGUMENTS;
}

/* The return value of a variant's callable.  To JAX it is a pytree node: the arrays are its
 * children, the trace number its aux data.  So JAX's caches hold no user objects. */
typedef struct {
    PyObject_HEAD PyObject *arrays; /* tuple */
    FjVariant *variant;             /* NULL if JAX unflattened it */
    FjStructure *structure;         /* NULL if JAX unflattened it */
    PyObject *given_trace;          /* JAX's aux data if it is a subclass of int (ANY_TRACE in
                                     * _shardings/_sharded_call.py), or NULL */
    Py_ssize_t trace;               /* -1 until JAX flattens it */
    unsigned long long ran;         /* nanoseconds of the executable, or 0 */
    unsigned long long waited;      /* nanoseconds of waiting for a program that can raise */
} FjOutput;

/* Returns the Structure of an Output of this variant (borrowed). */
FjStructure *fj_variant_output_structure(const FjVariant *variant, PyObject *output);

/* Without a variant and a Structure.  Steals the tuple `arrays` (NULL: an earlier error). */
PyObject *fj_output_new(FjState *state, PyObject *arrays, Py_ssize_t trace);

/* Module functions for JAX. */
PyObject *fj_output_flatten(PyObject *module, PyObject *output);
PyObject *fj_output_unflatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
