/* DirectContext, the state that all direct calls share: functions that ask JAX, and switches.
 *
 * The core imports nothing of JAX.  Python passes it the objects below. */
#pragma once

#include "base/common.h"

/* JAX's types and functions: PART(index, keyword of the constructor), or ONE_OF(index,
 * keyword, its type). */
#define FJ_JAX(PART, ONE_OF)                                                                  \
    /* the type of arrays, without its subclasses */                                          \
    ONE_OF(FJ_ARRAY_TYPE, array_type, PyType_Type)                                            \
    PART(FJ_GET_AVAL, get_aval)           /* array -> its aval, an interned object */         \
    PART(FJ_GET_SHARDING, get_sharding)   /* array -> its sharding */                         \
    PART(FJ_GET_COMMITTED, get_committed) /* array -> bool */                                 \
    PART(FJ_GET_LAYOUT, get_layout)       /* array -> its layout */                           \
    PART(FJ_IS_DELETED, is_deleted)       /* array -> bool */                                 \
    /* the type of typed random keys, which wrap an array */                                  \
    ONE_OF(FJ_KEY_TYPE, key_type, PyType_Type)                                                \
    PART(FJ_GET_DATA, get_data) /* keys -> the array */                                       \
    PART(FJ_GET_IMPL, get_impl) /* keys -> their implementation, compared by identity */      \
    /* the type of arrays in host memory, without its subclasses */                           \
    ONE_OF(FJ_HOST_ARRAY, host_array, PyType_Type)                                            \
    ONE_OF(FJ_HOST_SCALAR, host_scalar, PyType_Type) /* the base type of their scalars */     \
    /* (aval, sharding, [value], devices, committed, copies) -> array */                      \
    PART(FJ_PUT, put)                                                                         \
    /* () -> tuple of values, compared by identity, then by == */                             \
    PART(FJ_CONFIGURATION, configuration)                                                     \
    PART(FJ_GET_SETTING, get_setting) /* setting -> its value, compared by identity */        \
    /* settings outside the configuration */                                                  \
    ONE_OF(FJ_SETTINGS, settings, PyTuple_Type)                                               \
    /* () -> bool: jax.jit only calls its function (jax_disable_jit) */                       \
    PART(FJ_IS_DISABLED, is_disabled)                                                         \
    PART(FJ_IS_PROFILED, is_profiled) /* () -> bool: a profiler observes jax.jit's calls */   \
    /* () -> None: frees objects that other threads couldn't free */                          \
    PART(FJ_COLLECT, collect)                                                                 \
    /* (results of an executable, handlers) -> list of arrays */                              \
    PART(FJ_MAKE_ARRAYS, make_arrays)                                                         \
    PART(FJ_PLAN, plan) /* (source of a Direct, arrays) -> a plan, or a str: why not */

#define FJ_JAX_INDEX(index, ...) index,
enum { FJ_JAX(FJ_JAX_INDEX, FJ_JAX_INDEX) FJ_NUM_JAX };

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
