/* Reads and sets the fields of a Module or an object.  compat.h describes their storage.
 *
 * Without a GIL, attributes are read through the public API alone, which locks them, and set
 * as object.__setattr__ does.
 *
 * Without FJ_HAVE_INSTANCE_VALUES, everything goes through the instance's dict and the public
 * API.  A new instance gets its dict first, because setting items of a dict is faster than
 * setting attributes.
 *
 * Python code can run in a look-up in a __dict__ with other keys than str (not
 * fj_fields_have_str_names), in setting a data descriptor, and in finalizers. */
#include "structure/fields.h"

#include <structmember.h>

#if !FJ_HAVE_INSTANCE_VALUES
/* In Python 3.11, creating an object can start the garbage collector and so run Python code.
 * Newer versions start it only between Python instructions. */
PyObject *
fj_fields_dict(PyObject *object)
{
#if PY_VERSION_HEX < 0x030C0000
    int enabled = PyGC_Disable();
#endif
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
#if PY_VERSION_HEX < 0x030C0000
    if (enabled) {
        PyGC_Enable();
    }
#endif
    if (dict == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return dict;
}
#endif

int
fj_fields_view(PyObject *object, FjFieldView *view)
{
    view->values = NULL;
    view->dict = NULL;
    view->used = 0;
#if FJ_HAVE_INSTANCE_VALUES
    PyDictKeysObject *keys = fj_compat_shared_keys(Py_TYPE(object));
    if (FJ_LIKELY(keys != NULL)) {
        view->values = fj_compat_instance_values(object, keys, &view->used, &view->dict);
    }
    else {
        PyObject **pointer = _PyObject_GetDictPtr(object); /* does not create the dict */
        view->dict = pointer == NULL ? NULL : *pointer;
    }
#else
    view->dict = fj_fields_dict(object);
    if (FJ_UNLIKELY(view->dict == NULL && PyErr_Occurred())) {
        return -1;
    }
    Py_XDECREF(view->dict); /* the instance holds it */
#endif
    if (view->values == NULL && view->dict != NULL) {
        view->used = PyDict_GET_SIZE(view->dict);
    }
    return 0;
}

Py_ssize_t
fj_fields_find_place(FjNodeKind *kind, Py_ssize_t i)
{
#if FJ_HAVE_INSTANCE_VALUES
    PyDictKeysObject *keys = fj_compat_shared_keys(kind->type);
    if (keys != NULL) {
        kind->places[i] = fj_compat_shared_index(keys, PyTuple_GET_ITEM(kind->names, i));
    }
    if (kind->places[i] >= 0 && i < fj_node_kind_fields(kind)) {
        kind->placed++;
        kind->in_order += kind->places[i] == i;
        kind->reach = Py_MAX(kind->reach, kind->places[i] + 1);
    }
#endif
    return kind->places[i];
}

/* Python code can change an instance's class after its kind was looked up.  The new class has
 * other places and can have fewer values. */
static inline int
check_class(PyObject *object, const FjNodeKind *kind)
{
    if (FJ_UNLIKELY(Py_TYPE(object) != kind->type)) {
        return fj_raise(PyExc_RuntimeError, "an object changed its class while it was walked");
    }
    return 0;
}

/* fj_fields_view with a new reference to `dict`.  Without a GIL, it has all attributes. */
static inline int
view_and_hold(PyObject *object, FjFieldView *view)
{
#if FJ_FREE_THREADED
    PyObject *dict = fj_fields_dict(object);
    *view = (FjFieldView){.dict = dict, .used = dict == NULL ? 0 : PyDict_Size(dict)};
    return dict == NULL && PyErr_Occurred() ? -1 : 0;
#else
    int result = fj_fields_view(object, view);
    Py_XINCREF(view->dict); /* a look-up can run code that replaces the dict */
    return result;
#endif
}

/* (P) Returns the value of name `i` (new reference), or NULL if unset or with an error. */
static inline PyObject *
get_field(const FjFieldView *view, FjNodeKind *kind, Py_ssize_t i)
{
#if FJ_FREE_THREADED
    PyObject *name = PyTuple_GET_ITEM(kind->names, i);
    return view->dict == NULL ? NULL : fj_compat_dict_get(view->dict, name);
#else
    return Py_XNewRef(fj_fields_peek(view, kind, i));
#endif
}

int
fj_fields_get_all(PyObject *object, FjNodeKind *kind, Py_ssize_t count, PyObject *missing,
                  PyObject **values)
{
    FjFieldView view;
    int result = 0;
    if (check_class(object, kind) < 0 || view_and_hold(object, &view) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count && result == 0; i++) {
        values[i] = get_field(&view, kind, i);
        if (values[i] == missing) {
            Py_CLEAR(values[i]);
        }
        else if (values[i] == NULL && PyErr_Occurred()) {
            result = -1;
            while (i > 0) {
                Py_XDECREF(values[--i]);
            }
        }
    }
    Py_XDECREF(view.dict);
    return result;
}

/* True if no field (and no extra attribute of an object) is a data descriptor in the class, so
 * storing its value sets it.  Cached until the class changes. */
static int
stores_directly(FjNodeKind *kind, PyTypeObject *type)
{
#if FJ_FREE_THREADED
    return 0; /* another thread can change the class */
#endif
    if (FJ_LIKELY(kind->direct_version != 0 && kind->direct_version == type->tp_version_tag)) {
        return 1;
    }
    kind->direct_version = 0;
    Py_ssize_t count =
        fj_node_kind_fields(kind) + (kind->code == FJ_OBJECT ? kind->extra_names : 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *found =
            _PyType_Lookup(type, PyTuple_GET_ITEM(kind->names, i)); /* borrowed */
        if (found != NULL && Py_TYPE(found)->tp_descr_set != NULL) {
            return 0;
        }
    }
    /* The look-ups assigned a version to the class, or 0 if no versions are left. */
    kind->direct_version = type->tp_version_tag;
    return 1;
}

/* (P) Sets an item of `dict` or, if that is NULL, an attribute of `object`.  Steals `value`.
 */
static int
set_field(PyObject *object, PyObject *dict, PyObject *name, PyObject *value)
{
    int result = dict != NULL ? PyDict_SetItem(dict, name, value)
                              : PyObject_GenericSetAttr(object, name, value);
    Py_DECREF(value);
    return result;
}

#if FJ_HAVE_INSTANCE_VALUES
/* True if each value except NULL has a place in the array of an instance's values. */
static int
have_places(FjNodeKind *kind, PyObject *const *values, Py_ssize_t count)
{
    int result = count > 0; /* a class without fields need not have the array */
    for (Py_ssize_t i = 0; i < count && kind->placed < count && result; i++) {
        result =
            values[i] == NULL || kind->places[i] >= 0 || fj_fields_find_place(kind, i) >= 0;
    }
    return result;
}
#endif

int
fj_fields_fill(PyObject *object, FjNodeKind *kind, PyObject *const *values, Py_ssize_t count)
{
    int is_object = kind->code == FJ_OBJECT;
    int plain = is_object && !FJ_FREE_THREADED && fj_fields_are_plain(kind);
    const Py_ssize_t *offsets = plain ? kind->offsets : NULL;
    int direct = (!is_object || (plain && fj_fields_are_in_dict(kind))) &&
                 stores_directly(kind, Py_TYPE(object));
#if FJ_HAVE_INSTANCE_VALUES
    if (FJ_LIKELY(direct && have_places(kind, values, count) &&
                  fj_compat_fill_fresh(object, values, kind->places, count, kind->reach))) {
        return 0;
    }
    direct = direct && count > FJ_FIELDS_INLINE; /* CPython keeps this many in a dict */
#endif
    direct = direct && count > 0;
    PyObject *dict = direct ? PyObject_GenericGetDict(object, NULL) : NULL;
    int result = direct && dict == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t offset = offsets == NULL ? 0 : offsets[i];
        PyObject **slot = (PyObject **)((char *)object + offset);
        if (offset > 0 && *slot == NULL && result == 0) {
            *slot = values[i];
        }
        else if (result < 0 || values[i] == NULL) {
            Py_XDECREF(values[i]);
        }
        else {
            result = set_field(object, dict, PyTuple_GET_ITEM(kind->names, i), values[i]);
        }
    }
    Py_XDECREF(dict);
    return result;
}

/* True if getattr is object.__getattribute__, optionally followed by __getattr__. */
static int
has_generic_getattr(PyTypeObject *type, PyObject *name)
{
    if (type->tp_getattro == PyObject_GenericGetAttr) {
        return 1;
    }
    PyObject *own = fj_compat_type_lookup(type, name);
    PyObject *of_object = fj_compat_type_lookup(&PyBaseObject_Type, name);
    int same = own == of_object;
    Py_XDECREF(own);
    Py_XDECREF(of_object);
    return same;
}

/* `descriptor` is the class attribute with a field's name.  Returns the offset of the slot
 * that it reads, 0 if it leaves the attribute to the __dict__, or -1 otherwise. */
static Py_ssize_t
offset_of(PyTypeObject *type, PyObject *descriptor)
{
    if (descriptor == NULL || Py_TYPE(descriptor)->tp_descr_set == NULL) {
        return 0;
    }
    if (Py_TYPE(descriptor) != &PyMemberDescr_Type ||
        !PyType_IsSubtype(type, ((PyDescrObject *)descriptor)->d_type)) {
        return -1;
    }
    const PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
    int is_object = member->type == T_OBJECT || member->type == T_OBJECT_EX;
    return is_object && (member->flags & ~READONLY) == 0 && member->offset > 0 ? member->offset
                                                                               : -1;
}

/* True if all names in the namespaces of a class and its bases are exactly str.  Otherwise,
 * looking up a name in the class can run Python code. */
static int
has_str_names(PyTypeObject *type)
{
    int result = type->tp_mro != NULL;
    for (Py_ssize_t i = 0; result && i < PyTuple_GET_SIZE(type->tp_mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        PyObject *names = fj_compat_type_dict(base);
        result = names != NULL && fj_compat_dict_is_unicode(names);
    }
    return result;
}

/* fj_fields_look_at_class of a locked kind. */
static int
look_at_class(FjNodeKind *kind)
{
    PyTypeObject *type = kind->type;
    FJ_STORE_UINT(kind->plain_version, 0);
    kind->in_dict = 0;
    if (!has_str_names(type) ||
        !has_generic_getattr(type, fj_state_of(Py_TYPE(kind))->str___getattribute__)) {
        return 0;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(kind->names);
    unsigned int version = 0; /* read after the first look-up, which assigns one */
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *descriptor = fj_compat_type_lookup(type, PyTuple_GET_ITEM(kind->names, i));
        FJ_STORE_SIZE(kind->offsets[i], offset_of(type, descriptor));
        Py_XDECREF(descriptor);
        if (kind->offsets[i] < 0) {
            return 0;
        }
        kind->in_dict += kind->offsets[i] == 0;
        version = i == 0 ? FJ_LOAD_UINT(type->tp_version_tag) : version;
    }
    if (count > 0 && version != FJ_LOAD_UINT(type->tp_version_tag)) {
        return 0; /* another thread changed the class */
    }
    FJ_STORE_UINT(kind->plain_version, FJ_LOAD_UINT(type->tp_version_tag));
    return 1;
}

int
fj_fields_look_at_class(FjNodeKind *kind)
{
    int result;
    FJ_LOCKED(kind, result = look_at_class(kind));
    return result;
}

PyObject *const *
fj_fields_stored(FjNodeKind *kind, PyObject *object, PyObject **stack)
{
    FjFieldView view;
    Py_ssize_t count = fj_node_kind_fields(kind);
    if (count > FJ_FIELDS_INLINE || Py_TYPE(object) != kind->type ||
        !fj_fields_are_plain(kind) || !fj_fields_view_stored(object, kind, &view)) {
        return NULL;
    }
    int as_stored = view.values != NULL && fj_fields_in_order(kind) && kind->in_dict == count;
    PyObject **fields = as_stored ? view.values : stack;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!as_stored) {
            stack[i] = fj_fields_peek_object(object, &view, kind, i);
        }
        if (fields[i] == NULL) {
            return NULL;
        }
    }
    return fields;
}

PyObject *
fj_fields_getattr(PyObject *object, FjNodeKind *kind, Py_ssize_t i)
{
    if (check_class(object, kind) < 0) {
        return NULL;
    }
    if (FJ_LIKELY(fj_fields_are_plain(kind))) {
        PyObject *value = NULL;
        if (FJ_LOAD_SIZE(kind->offsets[i]) > 0) {
            value = fj_compat_slot_get(object, FJ_LOAD_SIZE(kind->offsets[i]));
        }
#if FJ_HAVE_INSTANCE_VALUES
        else {
            FjFieldView view;
            (void)fj_fields_view(object, &view); /* doesn't fail here */
            if (fj_fields_have_str_names(&view)) {
                value = Py_XNewRef(fj_fields_peek(&view, kind, i));
            }
        }
#endif
        if (value != NULL) {
            return value;
        }
    }
    return PyObject_GetAttr(object, PyTuple_GET_ITEM(kind->names, i));
}

int
fj_fields_is_wrapper(PyObject *object, const FjNodeKind *kind)
{
    FjFieldView view;
    if (view_and_hold(object, &view) < 0) {
        return -1;
    }
    Py_XDECREF(view.dict);
    return view.used != fj_node_kind_fields(kind);
}
