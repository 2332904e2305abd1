/* FilterJit, the type of a jitted function.  Its calls are in call.c. */
#pragma once

#include "base/common.h"
#include "call/cache.h"

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *function;       /* NULL after JAX unflattens, until `_function` is read */
    PyTypeObject *bound_type; /* of its bound methods */
    PyObject *hooks;          /* a Python object with the hooks as methods: call_hooks.c */
    PyObject *signature;      /* inspect.Signature, or None to find it in the first call */
    FjCache *cache;           /* NULL until the first call */
    PyObject *arrays; /* tuple of the arrays in the function; NULL until the first call */
    PyObject *dict;
    PyObject *weakrefs;
} FjFilterJit;

/* FilterJit's tp_descr_get: returns itself or a bound method.  Runs no Python code. */
PyObject *fj_filter_jit_bind(PyObject *self, PyObject *instance, PyObject *owner);
