/* Reading and setting the fields of a Module or an object directly in the storage of its
 * attributes.
 *
 * An instance keeps its attributes either in an array of values, in the order of the keys that
 * all instances of its type share, or in a dict.  The *place* of a field is its index in that
 * array.  Attributes of an object may also be in slots: the *offset* of a field is where its
 * slot is in the instance.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "structure/node_kind.h"

/* The largest number of keys that CPython lets the instances of a type share. */
#define FJ_FIELDS_INLINE 30

/* The storage of an instance's attributes.  Valid until Python code runs. */
typedef struct {
    PyObject **values; /* borrowed; NULL when the attributes are in `dict` */
    PyObject *dict;    /* borrowed; NULL when there are no attributes at all */
    Py_ssize_t used;   /* the number of attributes that are set */
} FjFieldView;

/* Fills in `view`.  0, or -1 with MemoryError: without FJ_HAVE_INSTANCE_VALUES, it may create
 * the instance's dict.  Runs no Python code. */
int fj_fields_view(PyObject *object, FjFieldView *view);

#if !FJ_HAVE_INSTANCE_VALUES
/* The instance's dict, a new reference, which is created if it has none yet; NULL without an
 * error if it cannot have one, or with MemoryError. */
PyObject *fj_fields_dict(PyObject *object);
#endif

/* The array of the instance's values, borrowed; `*used` is how many of them are set.  NULL
 * when the instance has no such array. */
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

/* Looks up the place of name `i`, and stores it in the kind; -1 if it has none. */
Py_ssize_t fj_fields_find_place(FjNodeKind *kind, Py_ssize_t i);

/* Whether the place of every field has been found, and is the index of the field. */
static inline int
fj_fields_in_order(const FjNodeKind *kind)
{
    return kind->in_order == fj_node_kind_fields(kind);
}

/* Whether reading a field runs no Python code: all names are exactly str. */
static inline int
fj_fields_are_python_free(const FjFieldView *view)
{
    return view->values != NULL || view->dict == NULL || fj_compat_dict_is_unicode(view->dict);
}

/* (P) The value of name `i`, borrowed; NULL when it is not set, or with an error.  Runs no
 * Python code, and does not fail, if the fields of `view` are python_free. */
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

/* (P) Sets `values` to new references to the values of the first `count` names, or NULL where
 * one is not set or is `missing`.  0, or -1 with an error and no references. */
int fj_fields_get_all(PyObject *object, FjNodeKind *kind, Py_ssize_t count, PyObject *missing,
                      PyObject **values);

/* (P) Sets the first `count` names of an instance that object.__new__ has just made, as
 * object.__setattr__ does; steals all `values`, where NULL leaves a name unset.  0, or -1 with
 * an error.  Runs Python code only if the class has a data descriptor of such a name, other
 * than a slot of an FJ_OBJECT. */
int fj_fields_fill(PyObject *object, FjNodeKind *kind, PyObject *const *values,
                   Py_ssize_t count);

/* Looks at the class of an FJ_OBJECT for fj_fields_are_plain. */
int fj_fields_look_at_class(FjNodeKind *kind);

/* Whether getattr reads the fields of an FJ_OBJECT where they are stored, and nothing else: in
 * slots, or in the __dict__ without a data descriptor of the same name.  Runs no Python code.
 */
static inline int
fj_fields_are_plain(FjNodeKind *kind)
{
    unsigned int version = FJ_LOAD_UINT(kind->plain_version);
    return FJ_LIKELY(version != 0 && version == FJ_LOAD_UINT(kind->type->tp_version_tag)) ||
           fj_fields_look_at_class(kind);
}

/* Whether no attribute of an object whose fields are plain is in a slot. */
static inline int
fj_fields_are_in_dict(const FjNodeKind *kind)
{
    return kind->in_dict == PyTuple_GET_SIZE(kind->names);
}

/* fj_fields_view for an object whose fields are plain; empty if none is in the __dict__. */
static inline int
fj_fields_view_object(PyObject *object, const FjNodeKind *kind, FjFieldView *view)
{
    if (kind->in_dict == 0) {
        *view = (FjFieldView){.used = 0};
        return 0;
    }
    return fj_fields_view(object, view);
}

/* (P) fj_fields_peek for an object whose fields are plain.  NULL where getattr has to look
 * further than the instance. */
static inline PyObject *
fj_fields_peek_object(PyObject *object, const FjFieldView *view, FjNodeKind *kind,
                      Py_ssize_t i)
{
    return kind->offsets[i] > 0 ? *(PyObject **)((char *)object + kind->offsets[i])
                                : fj_fields_peek(view, kind, i);
}

/* Whether the fields of an object, which are plain, can be read where they are stored, by
 * fj_fields_peek_object, without Python code. */
static inline int
fj_fields_view_stored(PyObject *object, const FjNodeKind *kind, FjFieldView *view)
{
    if (fj_fields_view_object(object, kind, view) < 0) {
        PyErr_Clear();
        return 0;
    }
    return fj_fields_are_python_free(view);
}

/* The fields of an object, in `room`, which has FJ_FIELDS_INLINE items, or where they are
 * stored; NULL if there are more, if the object has changed its class, or where reading one
 * would need Python code or getattr, which looks further than the instance. */
PyObject *const *fj_fields_stored(FjNodeKind *kind, PyObject *object, PyObject **room);

/* (P) getattr of field `i` of an FJ_OBJECT: a new reference, or NULL with an error. */
PyObject *fj_fields_getattr(PyObject *object, FjNodeKind *kind, Py_ssize_t i);

/* Notes the class of an FJ_OBJECT as it is when it is classified. */
static inline void
fj_fields_note_class(FjNodeKind *kind)
{
    kind->init_version = fj_fields_are_plain(kind) ? kind->plain_version : 0;
}

/* Whether the class of an FJ_BUILD_INIT object is as it was when it was classified, so that
 * its call does nothing but set the fields. */
int fj_fields_are_as_classified(FjNodeKind *kind);

/* Whether the instance counts as a wrapper, as after functools.update_wrapper: the number
 * of its attributes is not the number of its fields.  The attributes of a wrapper
 * (FjNodeKind.names) then belong to it as well, whether they are set or not, as in Equinox.
 * 1, 0, or -1 with MemoryError.  Runs no Python code. */
int fj_fields_is_wrapper(PyObject *object, const FjNodeKind *kind);
