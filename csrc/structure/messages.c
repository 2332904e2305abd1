/* Calls the formatters in _base/_messages.py, which run Python code, such as reprs. */
#include "structure/messages.h"

PyObject *
fj_messages_call(FjRegistry *registry, const char *name, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *args = Py_VaBuildValue(format, values);
    va_end(values);
    PyObject *function =
        args == NULL ? NULL : PyObject_GetAttrString(registry->types->messages, name);
    PyObject *result = function == NULL ? NULL : PyObject_CallObject(function, args);
    Py_XDECREF(function);
    Py_XDECREF(args);
    return result;
}

void
fj_messages_note_context(FjRegistry *registry)
{
    PyObject *exception = fj_compat_get_raised(); /* none is set while Python code runs */
    PyObject *done = fj_messages_call(registry, "note_context", "(O)", exception);
    if (done == NULL) {
        PyErr_Clear(); /* the exception matters more than its note */
    }
    Py_XDECREF(done);
    fj_compat_set_raised(exception);
}
