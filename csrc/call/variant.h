/* A variant: the compiled callable of one static structure, and what its traces returned.
 *
 * The callable takes arrays alone, those of the function first, and gives back an Output: the
 * arrays of the result and the number of the trace that they come from.  The trace's Structure
 * turns them into the user's tree.
 */
#ifndef FJ_VARIANT_H
#define FJ_VARIANT_H

#include "base/common.h"
#include "call/memo.h"
#include "structure/structure.h"

typedef enum {
    FJ_MAY_RAISE_UNKNOWN = -1, /* not looked at yet */
    FJ_MAY_RAISE_NO = 0,
    FJ_MAY_RAISE_YES = 1 /* the program can raise while it runs: a call waits for it */
} FjMayRaise;

/* What one trace returned. A program without array results has one more array, to wait for. */
typedef struct {
    FjStructure *structure; /* owned */
    FjMayRaise may_raise;
} FjTrace;

typedef enum {
    FJ_ALERT_RAISES = 1,  /* the program of a trace can raise, or it is not known yet */
    FJ_ALERT_DEFERRED = 2 /* something is deferred, in this thread or another */
} FjAlert;

/* What a call has to do when it is over, the call of one thread. */
typedef struct {
    unsigned long thread;
    PyObject *callable; /* owned */
} FjDeferred;

typedef struct {
    PyObject_HEAD FjStructure *function; /* of the function itself */
    FjStructure *structure;              /* of the arguments */
    PyObject *call;                      /* NULL until compiled */
    FjMemo *memo;                        /* of the arguments, NULL without */
    FjTrace *traces;                     /* only ever appended to */
    Py_ssize_t count;
    Py_ssize_t capacity;
    uint64_t last_used;
    size_t next_variant; /* which variant was called after it the last time: one more than its
                          * position in its Cache's table, 0 for this very one */
    unsigned long long hits; /* as in a Cache, of this variant */
    unsigned long long hit_time;
    int in_cache;    /* its Cache has it */
    int evicted;     /* its Cache was cleared, or dropped it: no call may guess it any more */
    unsigned alerts; /* FjAlert: what makes a call of it look closer */
    FjDeferred *deferred;
    Py_ssize_t deferred_count;
    Py_ssize_t deferred_capacity;
    PyObject *record; /* the Python side's, or NULL */
    PyObject *weakrefs;
} FjVariant;

/* JAX knows this as a pytree node: its children are the arrays, its aux data the number of the
 * trace.  So JAX's caches, which outlive everything, hold an int and no reference to the
 * user's objects. */
typedef struct {
    PyObject_HEAD PyObject *arrays; /* tuple */
    FjVariant *variant;             /* until JAX has taken it apart, else NULL */
    FjStructure *structure;         /* the same */
    Py_ssize_t trace;               /* -1 until JAX has taken it apart */
} FjOutput;

extern PyType_Spec fj_variant_spec;
extern PyType_Spec fj_output_spec;

FjVariant *fj_variant_new(FjState *state, FjStructure *function, FjStructure *structure);

/* Gives a variant without traces those of which the results are known: `outputs` is a tuple of
 * Structures, `waits` whether their programs can raise while they run.  0, or -1 with an
 * error. */
int fj_variant_set_outputs(FjVariant *variant, PyObject *outputs, FjMayRaise may_raise);

/* Says of a trace whether its program can raise while it runs, and updates the alerts. */
void fj_variant_set_may_raise(FjVariant *variant, Py_ssize_t trace, FjMayRaise may_raise);

/* How much this thread has deferred, which belongs to calls that are under way. */
Py_ssize_t fj_variant_count_deferred(const FjVariant *variant);

/* (P) Runs and drops what this thread has deferred, the last first, but for the first `kept`.
 * What fails is run once more, since an interrupt may have met it halfway.  `result` is that
 * of the call, stolen; NULL with an exception, which is kept.  It is given back, unless
 * something was interrupted: then NULL with KeyboardInterrupt or the like.  Other errors are
 * reported as unraisable where they come twice. */
PyObject *fj_variant_run_deferred(FjVariant *variant, Py_ssize_t kept, PyObject *result);

/* The Structure of an output that this variant's callable returned, borrowed from either; NULL
 * with an error where it is not this variant's. */
FjStructure *fj_variant_output_structure(const FjVariant *variant, const FjOutput *output);

/* Module functions: the two halves of the pytree node. */
PyObject *fj_output_flatten(PyObject *module, PyObject *output);
PyObject *fj_output_unflatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#endif
