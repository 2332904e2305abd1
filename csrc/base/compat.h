/* Code that depends on the version of Python, except for slots that only some versions have
 * (filter_jit.c, module.c) and a garbage collector that starts in allocations (fields.c).
 *
 * Versions differ in the names of API functions, and in the storage of an instance's
 * attributes and a dict's values.  The core reads this storage, which is internal to CPython,
 * because the public API takes four times as long as the rest of a walk.  The structs come
 * from the internal headers of the Python that the core is built against.  If
 * FJ_HAVE_INSTANCE_VALUES is 0, fields.c uses the instance's dict instead: slower, with the
 * same results.
 *
 * The core relies on these facts, read in the sources of CPython 3.14 and 3.15.
 * tests/core/walk/test_modules.py compares the states of an instance with vars().
 *
 * - Inline values have the same layout from 3.13 to 3.15.  While `valid` is set, they are the
 *   attributes of the instance.  Its `__dict__`, if it exists, is then a split dict with these
 *   very values.  CPython clears `valid` when the dict is replaced and when it gets a key that
 *   can't be shared.
 * - `capacity` is the number of keys that the type could share when the instance was
 *   allocated.  This number never grows, and it bounds the index of every key.  So a known
 *   place is below the capacity of all instances, old and new.  A type shares only its first
 *   30 keys (SHARED_KEYS_MAX_SIZE).  An instance that sets more uses a combined dict.
 * - tp_version_tag changes when the class or a base changes, and no version is used twice.
 *   Since 3.13 a class gets at most 1000 versions, then 0, which never matches.
 *   _PyType_Lookup assigns a version and returns a borrowed reference.
 * - Since 3.14 an argument can be borrowed from a local variable of the caller
 *   (LOAD_FAST_BORROW), which keeps it alive until the call returns.  So the core never asks
 *   if it owns the only reference.
 * - Without a GIL, readers must lock instances and dicts, so the core uses the public API.
 *
 * Runs no Python code, except on 3.11: fj_compat_get_raised creates the exception, and any
 * allocation can start the garbage collector. */
#pragma once

/* For PY_VERSION_HEX and Py_GIL_DISABLED.  Python.h must come after Py_BUILD_CORE_MODULE. */
#include <patchlevel.h>
#include <pyconfig.h>

#if PY_VERSION_HEX < 0x030B0000
#error "filterjit needs CPython 3.11 or newer"
#endif

/* Before Python 3.14, importing the core enables the GIL in builds without one. */
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
#define FJ_FREE_THREADED 1
#else
#define FJ_FREE_THREADED 0
#endif

#if !defined(FJ_NO_INTERNALS) && !defined(Py_GIL_DISABLED) && PY_VERSION_HEX < 0x03100000
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
#define object fj_unused_object /* pycore_asdl.h has a typedef named `object` */
#include "internal/pycore_dict.h"
#include "internal/pycore_object.h"
#undef object
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif

/* True if a weak reference, which can be NULL, still points to `object`. */
static inline int
fj_compat_weakref_is(PyObject *ref, const void *object)
{
#if FJ_FREE_THREADED
    return ref != NULL &&
           _Py_atomic_load_ptr_acquire(&((PyWeakReference *)ref)->wr_object) == object;
#else
    return ref != NULL && ((PyWeakReference *)ref)->wr_object == (const PyObject *)object;
#endif
}

/* Returns a new instance of a subclass of tuple with `count` NULL items.  The caller fills it
 * before other code can run.
 *
 * Since Python 3.14 a tuple caches its hash.  -1 means unknown, but tp_alloc leaves 0. */
static inline PyObject *
fj_compat_tuple_alloc(PyTypeObject *type, Py_ssize_t count)
{
    PyObject *tuple = type->tp_alloc(type, count);
#if PY_VERSION_HEX >= 0x030E0000
    if (tuple != NULL) {
        ((PyTupleObject *)tuple)->ob_hash = -1;
    }
#endif
    return tuple;
}

/* Monotonic nanoseconds. */
static inline unsigned long long
fj_compat_now(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyTime_t now;
    return PyTime_PerfCounterRaw(&now) < 0 ? 0 : (unsigned long long)now;
#else
    return (unsigned long long)_PyTime_GetPerfCounter();
#endif
}

/* Clears the current exception and returns it, normalized (new reference), or NULL. */
static inline PyObject *
fj_compat_get_raised(void)
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

/* Steals `exception`.  No-op if it is NULL. */
static inline void
fj_compat_set_raised(PyObject *exception)
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

/* Counts a C function that can recurse as three Python frames.  0, or -1 with RecursionError.
 *
 * These functions use much of the C stack.  Python 3.12 and 3.13 count Python and C frames
 * separately, with limits so high that this recursion would overflow the stack.  (3.11 has one
 * count for both; 3.14 measures the stack.) */
#define FJ_COMPAT_FRAMES 3
#if PY_VERSION_HEX < 0x030C0000
#define py_recursion_remaining recursion_remaining
#endif

static inline int
fj_compat_enter_frames(void)
{
#if PY_VERSION_HEX < 0x030E0000
    PyThreadState *thread = PyThreadState_Get();
    if (thread->py_recursion_remaining <= FJ_COMPAT_FRAMES) {
        PyErr_SetString(PyExc_RecursionError,
                        "maximum recursion depth exceeded in a jitted call");
        return -1;
    }
    thread->py_recursion_remaining -= FJ_COMPAT_FRAMES;
    return 0;
#else
    return Py_EnterRecursiveCall(" in a jitted call") ? -1 : 0; /* it returns 1 */
#endif
}

static inline void
fj_compat_leave_frames(void)
{
#if PY_VERSION_HEX < 0x030E0000
    PyThreadState_Get()->py_recursion_remaining += FJ_COMPAT_FRAMES;
#else
    Py_LeaveRecursiveCall();
#endif
}

/* Looks up `name` in the MRO.  A new reference, or NULL.  Assigns a version to the class. */
static inline PyObject *
fj_compat_type_lookup(PyTypeObject *type, PyObject *name)
{
#if FJ_FREE_THREADED
    return _PyType_LookupRef(type, name);
#else
    return Py_XNewRef(_PyType_Lookup(type, name));
#endif
}

/* Returns the namespace of a class (borrowed), or NULL. */
static inline PyObject *
fj_compat_type_dict(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *dict = PyType_GetDict(type);
    Py_XDECREF(dict); /* the class holds it */
    return dict;
#else
    return type->tp_dict;
#endif
}

/* True if every key is exactly a str.  Looking up a str then runs no Python code. */
static inline int
fj_compat_dict_is_unicode(PyObject *dict)
{
#if FJ_HAVE_INSTANCE_VALUES
    return DK_IS_UNICODE(((PyDictObject *)dict)->ma_keys);
#else
    Py_ssize_t position = 0;
    PyObject *key;
    int is_unicode = 1;
#if FJ_FREE_THREADED
    Py_BEGIN_CRITICAL_SECTION(dict);
#endif
    while (is_unicode && PyDict_Next(dict, &position, &key, NULL)) {
        is_unicode = PyUnicode_CheckExact(key);
    }
#if FJ_FREE_THREADED
    Py_END_CRITICAL_SECTION();
#endif
    return is_unicode;
#endif
}

/* Returns a new reference, or NULL if the key is absent or with an error. */
static inline PyObject *
fj_compat_dict_get(PyObject *dict, PyObject *key)
{
#if FJ_FREE_THREADED
    PyObject *value;
    (void)PyDict_GetItemRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

/* Returns the object in a slot (new reference), or NULL. */
static inline PyObject *
fj_compat_slot_get(PyObject *object, Py_ssize_t offset)
{
#if FJ_FREE_THREADED
    PyMemberDef slot = {.name = "", .type = Py_T_OBJECT_EX, .offset = offset};
    PyObject *value = PyMember_GetOne((const char *)object, &slot);
    if (value == NULL) {
        PyErr_Clear();
    }
    return value;
#else
    return Py_XNewRef(*(PyObject **)((char *)object + offset));
#endif
}

/* Returns the address of the object in a slot.  Another thread can drop the object. */
static inline const void *
fj_compat_slot_peek(PyObject *object, Py_ssize_t offset)
{
#if FJ_FREE_THREADED
    return _Py_atomic_load_ptr_acquire((PyObject **)((char *)object + offset));
#else
    return *(PyObject **)((char *)object + offset);
#endif
}

/* Stores `value` (stolen) in a slot and drops the previous object. */
static inline void
fj_compat_slot_set(PyObject *object, Py_ssize_t offset, PyObject *value)
{
#if FJ_FREE_THREADED
    PyMemberDef slot = {.name = "", .type = Py_T_OBJECT_EX, .offset = offset};
    (void)PyMember_SetOne((char *)object, &slot, value); /* fails for a read-only slot */
    Py_DECREF(value);
#else
    PyObject **place = (PyObject **)((char *)object + offset);
    Py_XSETREF(*place, value);
#endif
}

/* PyDict_Next, inlined for dicts that have only ever had keys of exactly str. */
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

/* Returns the keys that instances of a heap type share, or NULL. */
static inline PyDictKeysObject *
fj_compat_shared_keys(PyTypeObject *type)
{
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) ||
        !PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT)) {
        return NULL;
    }
    return ((PyHeapTypeObject *)type)->ht_cached_keys;
}

/* Returns the index of `name` (interned) in the shared keys, or -1.  Shared keys are only ever
 * appended, so an index remains valid. */
static inline Py_ssize_t
fj_compat_shared_index(PyDictKeysObject *keys, PyObject *name)
{
    if (keys->dk_kind != DICT_KEYS_SPLIT) {
        return -1;
    }
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(keys);
    for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
        /* Compare values too: a key added through a __dict__ need not be interned. */
        PyObject *key = entries[i].me_key;
        if (key == name || (key != NULL && PyUnicode_Compare(key, name) == 0)) {
            return i;
        }
    }
    return -1;
}

/* Returns the array of the instance's values, in the order of its type's shared keys, and
 * stores the number of set attributes in `*used`.  Without this array, returns NULL and sets
 * `*dict` to the instance's dict (borrowed; NULL if not created yet). */
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

/* Fills a new instance without attributes: stores `items[i]` (stolen) at `places[i]`, a number
 * below `reach`.  A NULL item leaves its place empty.  Returns 1, or 0 and steals nothing if
 * the instance lacks an array of values.
 *
 * Records the order of insertion as _PyDictValues_AddToInsertionOrder does, but counts in a
 * register.  A count in memory would make each store wait for the previous one. */
static inline int
fj_compat_fill_fresh(PyObject *object, PyObject *const *items, const Py_ssize_t *places,
                     Py_ssize_t count, Py_ssize_t reach)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyDictValues *values = PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_INLINE_VALUES)
                               ? _PyObject_InlineValues(object)
                               : NULL;
    if (values == NULL || !values->valid || reach > values->capacity) {
        return 0;
    }
    uint8_t *used = &values->size, *order = get_insertion_order_array(values);
    const int step = 1;
#else
    (void)reach; /* the array has room for all shared keys */
    if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) {
        return 0; /* an exception's dict is elsewhere */
    }
#if PY_VERSION_HEX >= 0x030C0000
    PyDictOrValues *home = _PyObject_DictOrValuesPointer(object);
    PyDictValues *values =
        _PyDictOrValues_IsValues(*home) ? _PyDictOrValues_GetValues(*home) : NULL;
#else
    PyDictValues *values = *_PyObject_ValuesPointer(object);
#endif
    if (values == NULL) {
        return 0;
    }
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

/* Returns the entries of a dict that doesn't share its keys, as a block of `*size` words.  An
 * entry is two words if `has_str_keys` (all keys have always been exactly str), otherwise
 * three.  Two are its key and value (borrowed; NULL if deleted).  NULL for other dicts. */
static inline PyObject *const *
fj_compat_dict_entries(PyObject *dict, int has_str_keys, Py_ssize_t *size)
{
#if FJ_HAVE_INSTANCE_VALUES
    PyDictKeysObject *keys = ((PyDictObject *)dict)->ma_keys;
    if (keys->dk_kind != (has_str_keys ? DICT_KEYS_UNICODE : DICT_KEYS_GENERAL)) {
        return NULL; /* a dict that shares its keys keeps its values elsewhere */
    }
    size_t words = has_str_keys ? sizeof(PyDictUnicodeEntry) : sizeof(PyDictKeyEntry);
    *size = keys->dk_nentries * (Py_ssize_t)(words / sizeof(PyObject *));
    return has_str_keys ? (PyObject *const *)DK_UNICODE_ENTRIES(keys)
                        : (PyObject *const *)DK_ENTRIES(keys);
#else
    (void)dict;
    (void)has_str_keys;
    (void)size;
    return NULL;
#endif
}
