/* What all direct calls share: how to ask JAX, and whether to ask.  The Python type
 * DirectContext.
 *
 * The core imports nothing of JAX: Python gives it objects, by what they take and return.
 */
#pragma once

#include "base/common.h"

/* The objects that Python gives, in the order of the constructor's arguments. */
enum {
    FJ_ARRAY_TYPE,    /* the type of arrays; an instance of a subclass is not one */
    FJ_GET_AVAL,      /* array -> its aval, an interned object */
    FJ_GET_SHARDING,  /* array -> its sharding */
    FJ_GET_COMMITTED, /* array -> bool */
    FJ_GET_LAYOUT,    /* array -> its layout */
    FJ_IS_DELETED,    /* array -> bool */
    FJ_KEY_TYPE,      /* the type of typed random keys, which wrap an array */
    FJ_GET_DATA,      /* keys -> the array */
    FJ_GET_IMPL,      /* keys -> what they are keys of, to be compared by identity */
    FJ_HOST_ARRAY,    /* the type of arrays in the host's memory: an instance of a subclass is
                       * not one; and of their scalars, */
    FJ_HOST_SCALAR,   /* which are of subclasses of this type */
    FJ_PUT,           /* (aval, sharding, [value], devices, committed, copies) -> array */
    FJ_CONFIGURATION, /* () -> tuple of values, compared by identity, then by == */
    FJ_GET_SETTING,   /* setting -> its value, to be compared by identity */
    FJ_SETTINGS,      /* tuple: settings that are not in the configuration */
    FJ_IS_DISABLED,   /* () -> bool: jax.jit only calls its function (jax_disable_jit) */
    FJ_IS_PROFILED,   /* () -> bool: a profiler wants to hear of jax.jit's calls */
    FJ_COLLECT,       /* () -> None: frees what other threads could not free */
    FJ_CONSUME,       /* (results of an executable, handlers) -> list of arrays */
    FJ_PLAN,          /* (source, arrays) -> a plan, or a str that says why there is none */
    FJ_KEPT,          /* the exception of a jax.jit that is about to trace a program that was
                       * kept: its load() returns a plan, or None if it has to trace */
    FJ_NUM_PARTS
};

typedef struct {
    PyObject_HEAD PyObject *parts[FJ_NUM_PARTS];
    int enabled;
    int timed;                /* whether executables are timed */
    Py_ssize_t after;         /* how many calls are passed on before a plan is made */
    unsigned long long epoch; /* entries of another epoch are dropped */
    FjCount calls;
} FjDirectContext;

/* (P) What one of the objects returns for `x`: a new reference, or NULL with an error. */
static inline PyObject *
fj_direct_ask(const FjDirectContext *context, int part, PyObject *x)
{
    return PyObject_Vectorcall(context->parts[part], &x, 1, NULL);
}
