/* FilterJit, the type of a jitted function.  Its calls are in call.c. */
#ifndef FJ_FILTER_JIT_H
#define FJ_FILTER_JIT_H

#include "base/common.h"
#include "call/cache.h"

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *function;       /* what is wrapped; NULL in one that JAX has unflattened, until
                               * __wrapped__ is read */
    PyTypeObject *bound_type; /* of its bound methods */
    PyObject *hooks;          /* the Python object whose methods are the hooks: call_hooks.c */
    PyObject *signature;      /* inspect.Signature, or None to find it at the first call */
    FjCache *cache;           /* NULL until the first call */
    PyObject *arrays; /* tuple of the arrays in the function; NULL until the first call */
    PyObject *dict;
    PyObject *weakrefs;
    FjLast last; /* see fj_cache_predict */
} FjFilterJit;

/* The variant of the last call of this lane of threads, which the caller owns, or NULL.
 *
 * Without a GIL the call takes the FilterJit's own reference, and gives it back: the count of
 * the references to a variant that all threads call would go from core to core. */
static inline FjVariant *
fj_filter_jit_take_last(FjFilterJit *self)
{
#if FJ_FREE_THREADED
    return fj_exchange(&self->last.variants[fj_lane()][0], NULL);
#else
    return (FjVariant *)Py_XNewRef((PyObject *)self->last.variants[0][0]);
#endif
}

/* (P) Makes a variant, which is stolen, that of the last call of this lane. */
static inline void
fj_filter_jit_give_last(FjFilterJit *self, FjVariant *variant)
{
    FjVariant *before = fj_exchange(&self->last.variants[fj_lane()][0], variant);
    Py_XDECREF(before);
}

/* The tp_descr_get of FilterJit: the function itself, or a bound method.  No Python code runs.
 */
PyObject *fj_filter_jit_bind(PyObject *self, PyObject *instance, PyObject *owner);

#endif
