/* FilterJit, the type of a jitted function.  Its calls are in call.c. */
#pragma once

#include "base/common.h"
#include "call/cache.h"

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *function;       /* what is wrapped; NULL in one that JAX has unflattened, until
                               * `_function` is read */
    PyTypeObject *bound_type; /* of its bound methods */
    PyObject *hooks;          /* the Python object whose methods are the hooks: call_hooks.c */
    PyObject *signature;      /* inspect.Signature, or None to find it at the first call */
    FjCache *cache;           /* NULL until the first call */
    PyObject *arrays; /* tuple of the arrays in the function; NULL until the first call */
    PyObject *dict;
    PyObject *weakrefs;
    FjLast last; /* see fj_last_take */
} FjFilterJit;

/* The tp_descr_get of FilterJit: the function itself, or a bound method.  No Python code runs.
 */
PyObject *fj_filter_jit_bind(PyObject *self, PyObject *instance, PyObject *owner);
