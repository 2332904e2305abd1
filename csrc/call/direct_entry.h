/* What is true of some calls, and the executable for them: an entry of a Direct.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_DIRECT_ENTRY_H
#define FJ_DIRECT_ENTRY_H

#include "base/common.h"
#include "call/direct_context.h"

/* The ways that a call can go, and their names. */
#define FJ_WAYS(WAY)                                                                          \
    WAY(direct)        /* to the executable */                                                \
    WAY(off)           /* the rest to jax.jit: direct calls are turned off */                 \
    WAY(waiting)       /* there is no entry yet */                                            \
    WAY(profiler)      /* a profiler wants to hear of the call */                             \
    WAY(configuration) /* JAX's configuration is another */                                   \
    WAY(type)          /* an argument is no array, or of another type than before */          \
    WAY(aval)          /* an array has another shape, dtype or weak type */                   \
    WAY(sharding)      /* an array is elsewhere, or was put there in another way */           \
    WAY(layout)        /* an array lies in memory in another order */                         \
    WAY(deleted)       /* an array is deleted, and other processes run the program too */     \
    WAY(failed)        /* the executable refused its arguments */                             \
    WAY(resting)       /* the last checks took long and were in vain */

typedef enum {
#define FJ_WAY_MEMBER(name) FJ_WAY_##name,
    FJ_WAYS(FJ_WAY_MEMBER) FJ_NUM_WAYS
#undef FJ_WAY_MEMBER
} FjWay;

/* What is expected of one argument, or of the array in it if it is typed random keys.  Of a
 * value in the host's memory: its type, dtype and shape, and where it is put. */
typedef struct {
    PyObject *impl; /* of the keys; NULL for an array */
    PyObject *aval;
    PyObject *sharding;
    PyObject *equal;     /* the last other sharding that was equal, or NULL */
    PyObject *committed; /* True or False */
    PyObject *layout;    /* NULL if arrays of this aval have only one */
    PyObject *host;      /* the type of a value in the host's memory, or NULL */
    PyObject *dtype;     /* of such a value; NULL, as the shape, of a number of Python's */
    PyObject *shape;     /* tuple */
    PyObject *devices;   /* the plan: list of the device on which it is put */
    PyObject *known;     /* weak reference to an array that needs no check, or NULL */
    const void *last;    /* address of the array of the last check */
    Py_ssize_t result;   /* the result of the call before that this argument is, or -1 */
    int is_proven;       /* such a result has passed the check, so all do */
    int is_read;         /* the program reads it */
} FjDirectArgument;

/* What is true of some calls, and their plan.  Each call that uses it holds a reference. */
typedef struct {
    Py_ssize_t references;
    int has_run;             /* jax.jit has made such a call */
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

/* Whether a type is that of Python's numbers. */
static inline int
fj_direct_is_number(const PyTypeObject *type)
{
    return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
           type == &PyComplex_Type;
}

/* Whether a type is that of values in the host's memory: arrays, scalars, numbers. */
static inline int
fj_direct_is_host(const FjDirectContext *context, PyTypeObject *type)
{
    return (PyObject *)type == context->parts[FJ_HOST_ARRAY] || fj_direct_is_number(type) ||
           PyType_IsSubtype(type, (PyTypeObject *)context->parts[FJ_HOST_SCALAR]);
}

/* Whether an argument is an array, typed random keys, or a value in the host's memory. */
static inline int
fj_direct_takes(const FjDirectContext *context, PyObject *argument)
{
    PyTypeObject *type = Py_TYPE(argument);
    return (PyObject *)type == context->parts[FJ_ARRAY_TYPE] ||
           (PyObject *)type == context->parts[FJ_KEY_TYPE] || fj_direct_is_host(context, type);
}

/* (P) An entry, without a plan, for calls that are like this one; NULL with an error. */
FjDirectEntry *fj_direct_entry_new(const FjDirectContext *context, PyObject *configuration,
                                   PyObject *const *args, Py_ssize_t nargs);

/* Gives an entry its plan: (execute, handlers, constants, flags, trace, checks_deleted, puts),
 * where `flags` has a byte for each argument: 1 if the program reads it, plus 2 if its layout
 * matters; and `puts` has (aval, sharding, devices) for each value in the host's memory that
 * the program reads, in order.  0, or -1 with an error. */
int fj_direct_entry_set_plan(FjDirectEntry *entry, PyObject *plan);

/* (P) Drops a reference of a call, or of the Direct.  An exception that is set stays. */
void fj_direct_entry_release(FjDirectEntry *entry);

int fj_direct_entry_traverse(FjDirectEntry *entry, visitproc visit, void *arg);

/* The way of a call for which Python has given another answer than the expected one, or an
 * error.  -1 if that is no Exception, as an interrupt; it stays set. */
int fj_direct_differs(int way);

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
 * or NULL with an error.  `*began` says whether the device has begun. */
PyObject *fj_direct_entry_run(FjDirectEntry *entry, const FjDirectContext *context,
                              PyObject *const *args, int *began);

#endif
