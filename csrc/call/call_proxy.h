/* CallProxy, and BoundMethod: the value of `instance.method` for a FilterJit `method`. */
#pragma once

#include "base/common.h"

/* Returns a bound method of `type`, BoundMethod or a subclass. */
PyObject *fj_bound_method_new(PyTypeObject *type, PyObject *function, PyObject *self);

/* True if `object` is a bound method of exactly this FilterJit and `self`. */
int fj_bound_method_is(PyObject *object, PyObject *function, PyObject *self);

/* `__init_subclass__` for types in C: the public type is a Python subclass that adds methods.
 * Makes the subclass as fast, final and immutable as its base.  Because nobody can give it a
 * `__call__` or `__get__`, it can inherit the vectorcall on all versions of CPython and be
 * called as a method without creating a bound method, if its base can.  A class that adds more
 * than methods stays an ordinary class. */
PyObject *fj_attribute_seal(PyObject *type, PyObject *ignored);
