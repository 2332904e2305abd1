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
fj_attribute_bind(PyObject *op, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(op)
                                                   : PyMethod_New(op, instance);
}
