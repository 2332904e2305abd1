/* Reads and sets the fields of a Module or an object directly in their storage.
 *
 * An instance stores its attributes in an array of values, ordered by the keys that all
 * instances of its type share, or in a dict.  The *place* of a field is its index in that
 * array.  An object can also store attributes in slots.  The *offset* of a field is the
 * position of its slot in the instance. */
#pragma once

#include "base/common.h"
#include "structure/node_kind.h"

/* The most keys that instances of a type can share in CPython. */
#define FJ_FIELDS_INLINE 30

/* The storage of an instance's attributes.  Valid until Python code runs. */
typedef struct {
    PyObject **values; /* borrowed; NULL if the attributes are in `dict` */
    PyObject *dict;    /* borrowed; NULL without any attributes */
    Py_ssize_t used;   /* number of set attributes */
} FjFieldView;

/* Without FJ_HAVE_INSTANCE_VALUES, can create the instance's dict.  Runs no Python code. */
int fj_fields_view(PyObject *object, FjFieldView *view);

#if !FJ_HAVE_INSTANCE_VALUES
/* Returns the instance's dict (new reference) and creates it if necessary.  NULL without an
 * error if the type has no dict, or with MemoryError. */
PyObject *fj_fields_dict(PyObject *object);
#endif

/* Returns the array of the instance's values (borrowed), or NULL if it doesn't use one.
 * `*used` is the number of set values. */
static inline PyObject *const *
fj_fields_values(PyObject *object, Py_ssize_t *used)
{
#if FJ_HAVE_INSTANCE_VALUES
    PyObject *dict;
    PyDictKeysObject *keys = fj_compat_shared_keys(Py_TYPE(object));
    return keys == NULL ? NULL : fj_compat_instance_values(object, keys, used, &dict);
#else
    (void)object;
    (void)used;
    return NULL;
#endif
}

/* Returns the place of name `i`, or -1, and stores it in the kind. */
Py_ssize_t fj_fields_find_place(FjNodeKind *kind, Py_ssize_t i);

/* True if the place of every field is known and equals its index. */
static inline int
fj_fields_in_order(const FjNodeKind *kind)
{
    return kind->in_order == fj_node_kind_fields(kind);
}

/* True if reading a field runs no Python code: all names are exactly str. */
static inline int
fj_fields_have_str_names(const FjFieldView *view)
{
    return view->values != NULL || view->dict == NULL || fj_compat_dict_is_unicode(view->dict);
}

/* (P) Returns the value of name `i` (borrowed), or NULL if unset or with an error.  With
 * fj_fields_have_str_names, it runs no Python code and doesn't fail. */
static inline PyObject *
fj_fields_peek(const FjFieldView *view, FjNodeKind *kind, Py_ssize_t i)
{
    if (FJ_LIKELY(view->values != NULL)) {
        Py_ssize_t place = kind->places[i];
        if (FJ_UNLIKELY(place < 0)) {
            place = fj_fields_find_place(kind, i);
        }
        return place < 0 ? NULL : view->values[place];
    }
    return view->dict == NULL
               ? NULL
               : PyDict_GetItemWithError(view->dict, PyTuple_GET_ITEM(kind->names, i));
}

/* (P) Stores new references to the first `count` fields in `values`, or NULL for a field that
 * is unset or `missing`.  0, or -1 with an error and no references. */
int fj_fields_get_all(PyObject *object, FjNodeKind *kind, Py_ssize_t count, PyObject *missing,
                      PyObject **values);

/* (P) Sets the first `count` names of a new, empty instance as object.__setattr__ does.
 * Steals all `values`; NULL leaves a name unset.  Runs Python code only if a name is a data
 * descriptor in the class, other than a slot of an FJ_OBJECT. */
int fj_fields_fill(PyObject *object, FjNodeKind *kind, PyObject *const *values,
                   Py_ssize_t count);

/* The slow path of fj_fields_are_plain. */
int fj_fields_look_at_class(FjNodeKind *kind);

/* True if getattr reads the fields of an FJ_OBJECT only from their storage: slots, or the
 * __dict__ without a data descriptor of the same name.  Runs no Python code. */
static inline int
fj_fields_are_plain(FjNodeKind *kind)
{
    unsigned int version = FJ_LOAD_UINT(kind->plain_version);
    return FJ_LIKELY(version != 0 && version == FJ_LOAD_UINT(kind->type->tp_version_tag)) ||
           fj_fields_look_at_class(kind);
}

/* True if an object with plain fields stores no attribute in a slot. */
static inline int
fj_fields_are_in_dict(const FjNodeKind *kind)
{
    return kind->in_dict == PyTuple_GET_SIZE(kind->names);
}

/* (P) fj_fields_peek for plain fields.  NULL if getattr must look beyond the instance. */
static inline PyObject *
fj_fields_peek_object(PyObject *object, const FjFieldView *view, FjNodeKind *kind,
                      Py_ssize_t i)
{
    return kind->offsets[i] > 0 ? *(PyObject **)((char *)object + kind->offsets[i])
                                : fj_fields_peek(view, kind, i);
}

/* fj_fields_view for an object with plain fields.  True if fj_fields_peek_object can then read
 * them without Python code. */
static inline int
fj_fields_view_stored(PyObject *object, const FjNodeKind *kind, FjFieldView *view)
{
    if (kind->in_dict == 0) {
        *view = (FjFieldView){.used = 0};
        return 1;
    }
    if (fj_fields_view(object, view) < 0) {
        PyErr_Clear();
        return 0;
    }
    return fj_fields_have_str_names(view);
}

/* Returns the fields of an object, from their storage or copied to `stack`, an array of
 * FJ_FIELDS_INLINE items.  NULL if there are more, if the object's class has changed, or if
 * reading a field needs Python code or must look beyond the instance. */
PyObject *const *fj_fields_stored(FjNodeKind *kind, PyObject *object, PyObject **stack);

/* (P) getattr of field `i` of an FJ_OBJECT. */
PyObject *fj_fields_getattr(PyObject *object, FjNodeKind *kind, Py_ssize_t i);

/* True for a wrapper, as after functools.update_wrapper: an instance with more or fewer
 * attributes than fields.  The wrapper attributes (FjNodeKind.names) then belong to it too,
 * set or unset, as in Equinox.  1, 0, or -1 with MemoryError.  Runs no Python code. */
int fj_fields_is_wrapper(PyObject *object, const FjNodeKind *kind);
