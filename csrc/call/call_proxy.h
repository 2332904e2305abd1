/* CallProxy: a callable that calls another one with arguments of its own in front. */
#ifndef FJ_CALL_PROXY_H
#define FJ_CALL_PROXY_H

#include "base/common.h"

typedef struct {
    PyObject_VAR_HEAD vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *attributes; /* the object whose attributes this one has too */
    PyObject *weakrefs;
    PyObject *args[]; /* those in front */
} FjCallProxy;

extern PyType_Spec fj_call_proxy_spec;

/* A new object of `type`, CallProxy or a subclass, with room for `count` arguments, or NULL
 * with an error. */
FjCallProxy *fj_call_proxy_new(PyTypeObject *type, PyObject *function, PyObject *attributes,
                               Py_ssize_t count);

/* Slots that a subclass in C names. */
int fj_call_proxy_traverse(PyObject *op, visitproc visit, void *arg);
void fj_call_proxy_dealloc(PyObject *op);
PyObject *fj_call_proxy_getattro(PyObject *op, PyObject *name);

#endif
