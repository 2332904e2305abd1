/* DirectContext, the state that all direct calls share: functions that ask JAX, and switches.
 *
 * The core imports nothing of JAX.  Python passes it the objects below. */
#pragma once

#include "base/common.h"

/* JAX's types and functions, in the order of the constructor's arguments: `context_parts` in
 * _compat/_direct_compat.py, then _plan in _call/_direct.py. */
enum {
    FJ_ARRAY_TYPE,    /* the type of arrays, without its subclasses */
    FJ_GET_AVAL,      /* array -> its aval, an interned object */
    FJ_GET_SHARDING,  /* array -> its sharding */
    FJ_GET_COMMITTED, /* array -> bool */
    FJ_GET_LAYOUT,    /* array -> its layout */
    FJ_IS_DELETED,    /* array -> bool */
    FJ_KEY_TYPE,      /* the type of typed random keys, which wrap an array */
    FJ_GET_DATA,      /* keys -> the array */
    FJ_GET_IMPL,      /* keys -> their implementation, compared by identity */
    FJ_HOST_ARRAY,    /* the type of arrays in host memory, without its subclasses */
    FJ_HOST_SCALAR,   /* the base type of their scalars */
    FJ_PUT,           /* (aval, sharding, [value], devices, committed, copies) -> array */
    FJ_CONFIGURATION, /* () -> tuple of values, compared by identity, then by == */
    FJ_GET_SETTING,   /* setting -> its value, compared by identity */
    FJ_SETTINGS,      /* tuple: settings outside the configuration */
    FJ_IS_DISABLED,   /* () -> bool: jax.jit only calls its function (jax_disable_jit) */
    FJ_IS_PROFILED,   /* () -> bool: a profiler observes jax.jit's calls */
    FJ_COLLECT,       /* () -> None: frees objects that other threads couldn't free */
    FJ_MAKE_ARRAYS,   /* (results of an executable, handlers) -> list of arrays */
    FJ_PLAN,          /* (source of a Direct, arrays) -> a plan, or a str: why not */
    FJ_NUM_JAX
};

typedef struct {
    PyObject_HEAD PyObject *jax[FJ_NUM_JAX];
    int enabled;
    int timed;                /* executables are timed */
    Py_ssize_t after;         /* number of calls to pass on before making a plan */
    unsigned long long epoch; /* entries of other epochs are dropped */
    FjCount calls;
} FjDirectContext;

/* (P) Calls one of the objects with `x`.  Returns a new reference. */
static inline PyObject *
fj_direct_ask(const FjDirectContext *context, int function, PyObject *x)
{
    return PyObject_Vectorcall(context->jax[function], &x, 1, NULL);
}
