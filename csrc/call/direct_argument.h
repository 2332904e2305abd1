/* One argument of direct calls: the facts recorded about it, and their check. */
#pragma once

#include "base/common.h"
#include "call/direct_context.h"

/* The routes that a call can go, and their names. */
#define FJ_ROUTES(ROUTE)                                                                      \
    ROUTE(direct)        /* to the executable */                                              \
    ROUTE(off)           /* the rest to jax.jit: direct calls are disabled */                 \
    ROUTE(waiting)       /* no entry yet */                                                   \
    ROUTE(profiler)      /* a profiler observes calls */                                      \
    ROUTE(configuration) /* JAX's configuration differs */                                    \
    ROUTE(type)          /* an argument isn't an array, or its type differs */                \
    ROUTE(aval)          /* an array's shape, dtype or weak type differs */                   \
    ROUTE(sharding)      /* an array's sharding or committed flag differs */                  \
    ROUTE(layout)        /* an array's memory layout differs */                               \
    ROUTE(deleted)       /* an array is deleted, and other processes run the program too */   \
    ROUTE(failed)        /* the executable refused its arguments */

typedef enum {
#define FJ_ROUTE_MEMBER(name) FJ_ROUTE_##name,
    FJ_ROUTES(FJ_ROUTE_MEMBER) FJ_NUM_ROUTES
} FjRoute;

/* The facts recorded about one argument: an array, typed random keys (their array) or a value
 * in host memory (its type, dtype and shape, and where to put it). */
typedef struct {
    PyObject *impl; /* of the keys; NULL for an array */
    PyObject *aval;
    PyObject *sharding;
    PyObject *equal;       /* the last other sharding that was equal, or NULL */
    PyObject *committed;   /* True or False */
    PyObject *layout;      /* NULL if arrays of this aval have only one */
    PyObject *host;        /* the type of a value in host memory, or NULL */
    PyObject *dtype;       /* of a host value; NULL, like `shape`, for a Python number */
    PyObject *shape;       /* tuple */
    PyObject *devices;     /* the plan: a list with the target device */
    PyObject *known;       /* weak reference to an array that needs no check, or NULL */
    const void *last;      /* address of the last checked array */
    Py_ssize_t result;     /* index in the last call's results, or -1 */
    int result_is_checked; /* that result has passed the check, and always will */
    int is_read;           /* the program reads it */
} FjDirectArgument;

/* True for an array that is neither random keys nor in host memory. */
static inline int
fj_direct_argument_is_array(const FjDirectArgument *argument)
{
    return argument->impl == NULL && argument->host == NULL;
}

static inline int
fj_direct_is_number(const PyTypeObject *type)
{
    return type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
           type == &PyComplex_Type;
}

/* True for the types of host values: NumPy's arrays and scalars, and Python's numbers. */
static inline int
fj_direct_is_host(const FjDirectContext *context, PyTypeObject *type)
{
    return (PyObject *)type == context->jax[FJ_HOST_ARRAY] || fj_direct_is_number(type) ||
           PyType_IsSubtype(type, (PyTypeObject *)context->jax[FJ_HOST_SCALAR]);
}

/* True for an array, typed random keys, or a host value. */
static inline int
fj_direct_takes(const FjDirectContext *context, PyObject *argument)
{
    PyTypeObject *type = Py_TYPE(argument);
    return (PyObject *)type == context->jax[FJ_ARRAY_TYPE] ||
           (PyObject *)type == context->jax[FJ_KEY_TYPE] || fj_direct_is_host(context, type);
}

/* Returns `route`, for a call in which Python returned an unexpected answer or raised.  An
 * Exception is cleared.  Any other error, such as an interrupt, stays set: returns -1. */
int fj_direct_differs(int route);

/* (P) 1 if two values have the same type and are equal, 0 (also if the comparison raises an
 * Exception), or -1 with any other error. */
int fj_direct_equal(PyObject *x, PyObject *y);

/* (P) Returns the argument itself or the array in random keys. */
PyObject *fj_direct_array_of(const FjDirectContext *context, PyObject *argument);

/* (P) Records the facts about an argument in an empty FjDirectArgument. */
int fj_direct_argument_describe(FjDirectArgument *argument, const FjDirectContext *context,
                                PyObject *value);

/* (P) Checks an argument that the caller holds.  Returns a route, or -1 with an error that
 * isn't an Exception.  Increments `*compared` if it compares shardings by ==. */
int fj_direct_argument_check(FjDirectArgument *argument, const FjDirectContext *context,
                             PyObject *value, Py_ssize_t *compared);
