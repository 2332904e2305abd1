/* One argument of direct calls: what is expected of it, and whether an argument is so.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

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

/* Whether it is an array, and neither random keys nor in the host's memory. */
static inline int
fj_direct_argument_is_array(const FjDirectArgument *argument)
{
    return argument->impl == NULL && argument->host == NULL;
}

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

/* The way of a call for which Python has given another answer than the expected one, or an
 * error.  -1 if that is no Exception, as an interrupt; it stays set. */
int fj_direct_differs(int way);

/* (P) Whether two values are of one type and equal.  1; 0, also where the comparison raises an
 * Exception; or -1 with another error. */
int fj_direct_equal(PyObject *x, PyObject *y);

/* (P) The array of an argument: itself, or that in random keys; NULL with an error. */
PyObject *fj_direct_array_of(const FjDirectContext *context, PyObject *argument);

/* (P) Stores what is true of an argument, in one that is empty.  0, or -1 with an error. */
int fj_direct_argument_describe(FjDirectArgument *argument, const FjDirectContext *context,
                                PyObject *value);

/* (P) Checks an argument, which the caller holds: FJ_WAY_direct, another way, or -1 with an
 * error that is no Exception.  Adds to `*compared` if it compares shardings by equality. */
int fj_direct_argument_check(FjDirectArgument *argument, const FjDirectContext *context,
                             PyObject *value, Py_ssize_t *compared);
