/* What the types that stand for another callable have in common: how their attributes are
 * looked up, and how they get methods from a Python subclass.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_ATTRIBUTE_H
#define FJ_ATTRIBUTE_H

#include "base/common.h"

/* (P) Looks up an attribute of `op` or, if it has none of this name, of `wrapped`.  A new
 * reference, or NULL with an error. */
PyObject *fj_attribute_get(PyObject *op, PyObject *name, PyObject *wrapped);

/* The `__init_subclass__` of a type in C whose public type is a Python subclass with more
 * methods.  It makes the subclass as fast, as final and as immutable as a type in C: as nobody
 * can give it a `__call__` or `__get__`, it can have the vectorcall on all versions of
 * CPython, and be called as a method without a bound method, where its base can.  A class that
 * adds more than methods stays an ordinary class. */
PyObject *fj_attribute_seal(PyObject *type, PyObject *ignored);

#endif
