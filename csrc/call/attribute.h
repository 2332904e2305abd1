/* What the types that stand for another callable have in common: how their attributes are
 * looked up, and how they become methods.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_ATTRIBUTE_H
#define FJ_ATTRIBUTE_H

#include "base/common.h"

/* (P) Looks up an attribute of `op` or, if it has none of this name, of `wrapped`.  A new
 * reference, or NULL with an error. */
PyObject *fj_attribute_get(PyObject *op, PyObject *name, PyObject *wrapped);

/* The tp_descr_get of a type whose instances become methods as Python's functions do. */
PyObject *fj_attribute_bind(PyObject *op, PyObject *instance, PyObject *owner);

#endif
