/* Reading the attributes of an instance; compat.h knows where they are.
 *
 * Python code can run only in a look-up in a __dict__ that somebody gave keys which are not
 * exactly str (FjFieldView.plain says so).
 */
#include "fields.h"

int
fj_fields_view(PyObject *object, FjFieldView *view)
{
    view->values = NULL;
    view->dict = NULL;
    view->used = 0;
    view->plain = 1;
#if FJ_HAVE_INSTANCE_VALUES
    PyDictKeysObject *keys = fj_compat_shared_keys(Py_TYPE(object));
    if (FJ_LIKELY(keys != NULL)) {
        view->values = fj_compat_instance_values(object, keys, &view->used, &view->dict);
    }
    else
#endif
    {
        view->dict = PyObject_GenericGetDict(object, NULL);
        if (view->dict == NULL) {
            if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
                PyErr_Clear();
                return 0;
            }
            return -1;
        }
        Py_DECREF(view->dict); /* the instance holds it */
    }
    if (view->values == NULL && view->dict != NULL) {
        view->used = PyDict_GET_SIZE(view->dict);
        view->plain = fj_compat_dict_is_unicode(view->dict);
    }
    return 0;
}

Py_ssize_t
fj_fields_learn_place(FjNodeKind *kind, Py_ssize_t i)
{
#if FJ_HAVE_INSTANCE_VALUES
    PyDictKeysObject *keys = fj_compat_shared_keys(kind->type);
    if (keys != NULL) {
        kind->places[i] = fj_compat_shared_index(keys, PyTuple_GET_ITEM(kind->names, i));
    }
#endif
    return kind->places[i];
}

int
fj_fields_get(PyObject *object, FjNodeKind *kind, Py_ssize_t i, PyObject *missing,
              PyObject **value)
{
    FjFieldView view;
    if (fj_fields_view(object, &view) < 0) {
        return -1;
    }
    *value = fj_fields_peek(&view, kind, i);
    if (*value == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (*value == missing) {
        *value = NULL;
        return 0;
    }
    Py_INCREF(*value);
    return 1;
}

int
fj_fields_has_wrapper(PyObject *object, FjNodeKind *kind, PyObject *missing)
{
    Py_ssize_t fields = kind->dynamic + kind->statics;
    FjFieldView view;
    if (fj_fields_view(object, &view) < 0) {
        return -1;
    }
    if (FJ_LIKELY(view.used == fields)) {
        return 0;
    }
    for (Py_ssize_t i = fields; i < fields + kind->wrapper; i++) {
        PyObject *value;
        int found = fj_fields_get(object, kind, i, missing, &value);
        if (found > 0) {
            Py_DECREF(value);
        }
        if (found != 0) {
            return found;
        }
    }
    return 0;
}
