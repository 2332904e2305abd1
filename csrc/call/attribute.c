/* Attributes of the types that stand for another callable.
 *
 * Python code can run in fj_attribute_get, which looks up attributes of other objects.
 */
#include "call/attribute.h"

PyObject *
fj_attribute_get(PyObject *op, PyObject *name, PyObject *wrapped)
{
    PyObject *value = PyObject_GenericGetAttr(op, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = PyObject_GetAttr(wrapped, name);
    }
    return value;
}

PyObject *
fj_attribute_seal(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyTypeObject *type = (PyTypeObject *)op, *base = type->tp_base;
    if (type->tp_basicsize != base->tp_basicsize ||
        type->tp_dictoffset != base->tp_dictoffset || type->tp_finalize != NULL ||
        type->tp_call != base->tp_call || type->tp_descr_get != base->tp_descr_get) {
        Py_RETURN_NONE;
    }
    type->tp_flags &= ~Py_TPFLAGS_BASETYPE;
    type->tp_flags |=
        Py_TPFLAGS_IMMUTABLETYPE |
        (base->tp_flags & (Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR));
    /* Instead of those for any class, which also look for what it does not have. */
    type->tp_dealloc = base->tp_dealloc;
    type->tp_traverse = base->tp_traverse;
    type->tp_clear = base->tp_clear;
    PyType_Modified(type);
    Py_RETURN_NONE;
}
