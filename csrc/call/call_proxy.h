/* CallProxy, and BoundMethod: what `instance.method` is if `method` is a FilterJit. */
#ifndef FJ_CALL_PROXY_H
#define FJ_CALL_PROXY_H

#include "base/common.h"

/* A new bound method of `type`, BoundMethod or a subclass, or NULL with an error. */
PyObject *fj_bound_method_new(PyTypeObject *type, PyObject *function, PyObject *self);

/* Whether `object` is a bound method of exactly this FilterJit and this `self`. */
int fj_bound_method_is(PyObject *object, PyObject *function, PyObject *self);

#endif
