/* FilterJit, the object that a user holds; the road of its calls is in call.c. */
#ifndef FJ_FILTER_JIT_H
#define FJ_FILTER_JIT_H

#include "call/cache.h"
#include "call/hook_method.h"
#include "base/common.h"
#include "call/variant.h"

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject
        *function;     /* what is wrapped; NULL in one that JAX has rebuilt, until asked for */
    PyObject *options; /* the Python side: preparing, compiling, errors */
    PyObject *signature; /* inspect.Signature, or None to be worked out at the first call */
    FjCache *cache;      /* NULL until the first call */
    PyObject *arrays;    /* tuple: the arrays in the function itself; NULL until then */
    FjVariant *last;     /* the variant hit last; its next_variant is the guess */
    PyObject *dict;
    PyObject *weakrefs;
} FjFilterJit;

extern PyType_Spec fj_filter_jit_spec;
extern const FjHookMethodDef fj_filter_jit_hooks[];

/* Module function rebuild(cache, arrays) -> FilterJit: what JAX's unflatten calls. */
PyObject *fj_filter_jit_rebuild(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#endif
