/* The only place that asks for the version of Python.
 *
 * Two things differ by version: names of API functions, and where an instance keeps its
 * attributes, or a dict its values.  The second is CPython's own business; we read it because
 * asking through the public API costs four times the rest of a walk.  The layouts come from
 * the internal headers of the very Python that we are built against, so they cannot be out of
 * step.  On a version that is not listed below FJ_HAVE_INSTANCE_VALUES is 0, and fields.c goes
 * through the instance's dict instead: slower, never wrong.
 *
 * Nothing in here runs Python code.
 */
#ifndef FJ_COMPAT_H
#define FJ_COMPAT_H

/* The version, before Python.h: the internal headers want to be announced. */
#include <patchlevel.h>

#if PY_VERSION_HEX < 0x030B0000
#error "filterjit needs CPython 3.11 or newer"
#endif

#if !defined(FJ_NO_INTERNALS) && PY_VERSION_HEX < 0x030E0000
#define FJ_HAVE_INSTANCE_VALUES 1
#define Py_BUILD_CORE_MODULE 1
#else
#define FJ_HAVE_INSTANCE_VALUES 0
#endif

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if FJ_HAVE_INSTANCE_VALUES
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
#define object fj_unused_object /* pycore_asdl.h has a typedef of this name */
#include "internal/pycore_dict.h"
#include "internal/pycore_object.h"
#undef object
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif

/* A strong reference to what a weak reference points to, NULL without an error when it is
 * gone. */
static inline PyObject *
fj_compat_weakref_get(PyObject *ref)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *object = NULL;
    if (PyWeakref_GetRef(ref, &object) < 0) {
        PyErr_Clear();
    }
    return object;
#else
    PyObject *object = PyWeakref_GetObject(ref);
    return object == NULL || object == Py_None ? NULL : Py_NewRef(object);
#endif
}

/* The exception that is set, normalized and taken from the thread; NULL when none is. */
static inline PyObject *
fj_compat_take_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL) {
        return NULL;
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* Sets `exception` (stolen) as the thread's; nothing where it is NULL. */
static inline void
fj_compat_give_exception(PyObject *exception)
{
    if (exception == NULL) {
        return;
    }
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(exception);
#else
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exception)), exception,
                  PyException_GetTraceback(exception));
#endif
}

/* Counts what may call again, and takes much of the stack, as three frames of Python's, where
 * `counts`: 3.12 and 3.13 count Python's frames and C's apart, and allow so many of either
 * that one of Python's for each of ours would use the stack up.  (3.11 has one count for
 * both, 3.14 looks at the stack itself.)  0, or -1 with RecursionError. */
#define FJ_COMPAT_FRAMES 3

static inline int
fj_compat_enter_frames(int counts)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    if (counts) {
        PyThreadState *thread = PyThreadState_Get();
        if (thread->py_recursion_remaining <= FJ_COMPAT_FRAMES) {
            PyErr_SetString(PyExc_RecursionError,
                            "maximum recursion depth exceeded in a jitted call");
            return -1;
        }
        thread->py_recursion_remaining -= FJ_COMPAT_FRAMES;
    }
#else
    (void)counts;
#endif
    return 0;
}

static inline void
fj_compat_leave_frames(int counts)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    if (counts) {
        PyThreadState_Get()->py_recursion_remaining += FJ_COMPAT_FRAMES;
    }
#else
    (void)counts;
#endif
}

/* The same as `count` times Py_INCREF. */
static inline void
fj_compat_add_references(PyObject *object, Py_ssize_t count)
{
#if PY_VERSION_HEX >= 0x030C0000
    if (_Py_IsImmortal(object)) {
        return;
    }
#endif
    Py_SET_REFCNT(object, Py_REFCNT(object) + count);
}

/* 1 when every key of the dict is exactly a str, so that a look-up by str runs no Python
 * code. */
static inline int
fj_compat_dict_is_unicode(PyObject *dict)
{
#if FJ_HAVE_INSTANCE_VALUES
    return DK_IS_UNICODE(((PyDictObject *)dict)->ma_keys);
#else
    Py_ssize_t position = 0;
    PyObject *key;
    while (PyDict_Next(dict, &position, &key, NULL)) {
        if (!PyUnicode_CheckExact(key)) {
            return 0;
        }
    }
    return 1;
#endif
}

/* PyDict_Next, without a call for dicts that have only ever had keys that are exactly str. */
static inline int
fj_compat_dict_next(PyObject *dict, Py_ssize_t *position, PyObject **key, PyObject **value)
{
#if FJ_HAVE_INSTANCE_VALUES
    PyDictKeysObject *keys = ((PyDictObject *)dict)->ma_keys;
    if (keys->dk_kind == DICT_KEYS_UNICODE && *position < keys->dk_nentries) {
        const PyDictUnicodeEntry *entry = &DK_UNICODE_ENTRIES(keys)[*position];
        if (entry->me_value != NULL) {
            *key = entry->me_key;
            *value = entry->me_value;
            ++*position;
            return 1;
        }
    }
#endif
    return PyDict_Next(dict, position, key, value);
}

#if FJ_HAVE_INSTANCE_VALUES

/* The keys that the instances of a heap type share; NULL when they share none. */
static inline PyDictKeysObject *
fj_compat_shared_keys(PyTypeObject *type)
{
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) ||
        !PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT)) {
        return NULL;
    }
    return ((PyHeapTypeObject *)type)->ht_cached_keys;
}

/* Where `name` (interned) stands among the shared keys, -1 when it does not.  Keys are only
 * ever appended, so an index once found stays true. */
static inline Py_ssize_t
fj_compat_shared_index(PyDictKeysObject *keys, PyObject *name)
{
    if (keys->dk_kind != DICT_KEYS_SPLIT) {
        return -1;
    }
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(keys);
    for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
        /* By value too: a key that came in through a __dict__ need not be interned. */
        PyObject *key = entries[i].me_key;
        if (key == name || (key != NULL && PyUnicode_Compare(key, name) == 0)) {
            return i;
        }
    }
    return -1;
}

/* The instance's values, in the order of its type's shared keys, and how many are set.  NULL
 * when it does not keep them so; `*dict` is then its dict (borrowed), or NULL when it has
 * none yet. */
static inline PyObject **
fj_compat_instance_values(PyObject *object, PyDictKeysObject *keys, Py_ssize_t *used,
                          PyObject **dict)
{
    PyDictValues *values = NULL;
#if PY_VERSION_HEX >= 0x030D0000
    *dict = (PyObject *)_PyObject_GetManagedDict(object);
    if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_INLINE_VALUES)) {
        values = _PyObject_InlineValues(object);
        if (!values->valid) {
            values = NULL;
        }
        else {
            *used = values->size;
        }
    }
#elif PY_VERSION_HEX >= 0x030C0000
    PyDictOrValues *place = _PyObject_DictOrValuesPointer(object);
    *dict = NULL;
    if (_PyDictOrValues_IsValues(*place)) {
        values = _PyDictOrValues_GetValues(*place);
    }
    else {
        *dict = _PyDictOrValues_GetDict(*place);
    }
    if (values != NULL) {
        *used = ((uint8_t *)values)[-2];
    }
#else
    *dict = *_PyObject_ManagedDictPointer(object);
    values = *_PyObject_ValuesPointer(object);
    if (values != NULL) {
        *used = ((uint8_t *)values)[-2];
    }
#endif
    if (values == NULL && *dict != NULL) {
        PyDictObject *split = (PyDictObject *)*dict;
        if (split->ma_values != NULL && split->ma_keys == keys) {
            values = split->ma_values;
            *used = split->ma_used;
        }
    }
    return values == NULL ? NULL : values->values;
}

/* Where an instance that was just allocated keeps its values, at least `count` of them; NULL
 * when it does not keep them in an array. */
static inline PyDictValues *
fj_compat_fresh_values(PyObject *object, Py_ssize_t count)
{
#if PY_VERSION_HEX >= 0x030D0000
    if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_INLINE_VALUES)) {
        return NULL;
    }
    PyDictValues *values = _PyObject_InlineValues(object);
    return values->valid && count <= values->capacity ? values : NULL;
#elif PY_VERSION_HEX >= 0x030C0000
    (void)count; /* as many as its type's keys */
    PyDictOrValues *home = _PyObject_DictOrValuesPointer(object);
    return _PyDictOrValues_IsValues(*home) ? _PyDictOrValues_GetValues(*home) : NULL;
#else
    (void)count;
    return *_PyObject_ValuesPointer(object);
#endif
}

/* Stores `value` (stolen) in an instance that was just allocated and has nothing at `place`
 * yet.  1, or 0 when the instance does not keep its values in an array; nothing is stolen
 * then. */
static inline int
fj_compat_set_fresh(PyObject *object, Py_ssize_t place, PyObject *value)
{
    PyDictValues *values = fj_compat_fresh_values(object, place + 1);
    if (values == NULL || values->values[place] != NULL) {
        return 0;
    }
    values->values[place] = value;
    _PyDictValues_AddToInsertionOrder(values, place);
    return 1;
}

/* The same for `count` items, each at its place, all below `reach`, where nothing at all is
 * stored yet; NULL among `items` leaves a place empty.
 *
 * It writes down the order of insertion as _PyDictValues_AddToInsertionOrder does, but counts
 * in a register: through memory, each field would wait for the one before it. */
static inline int
fj_compat_fill_fresh(PyObject *object, PyObject *const *items, const Py_ssize_t *places,
                     Py_ssize_t count, Py_ssize_t reach)
{
    PyDictValues *values = fj_compat_fresh_values(object, reach);
    if (values == NULL) {
        return 0;
    }
#if PY_VERSION_HEX >= 0x030D0000
    uint8_t *used = &values->size, *order = get_insertion_order_array(values);
    const int step = 1;
#else
    uint8_t *used = (uint8_t *)values - 2, *order = used - 1;
    const int step = -1;
#endif
    uint8_t stored = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (items[i] != NULL) {
            values->values[places[i]] = items[i];
            *order = (uint8_t)places[i];
            order += step;
            stored++;
        }
    }
    *used = stored;
    return 1;
}

#endif /* FJ_HAVE_INSTANCE_VALUES */

#endif
