/* CallProxy, and BoundMethod: what `instance.method` is if `method` is a FilterJit. */
#pragma once

#include "base/common.h"

/* A new bound method of `type`, BoundMethod or a subclass, or NULL with an error. */
PyObject *fj_bound_method_new(PyTypeObject *type, PyObject *function, PyObject *self);

/* Whether `object` is a bound method of exactly this FilterJit and this `self`. */
int fj_bound_method_is(PyObject *object, PyObject *function, PyObject *self);

/* The `__init_subclass__` of a type in C whose public type is a Python subclass with more
 * methods.  It makes the subclass as fast, as final and as immutable as a type in C: as nobody
 * can give it a `__call__` or `__get__`, it can have the vectorcall on all versions of
 * CPython, and be called as a method without a bound method, where its base can.  A class that
 * adds more than methods stays an ordinary class. */
PyObject *fj_attribute_seal(PyObject *type, PyObject *ignored);
