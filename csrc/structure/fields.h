/* The attributes of an instance, read where CPython keeps them.
 *
 * An instance keeps its attributes either in an array, in the order of the keys that its type
 * shares, or in a dict.  A view says which; it holds as long as no Python code runs.
 */
#ifndef FJ_FIELDS_H
#define FJ_FIELDS_H

#include "base/common.h"
#include "structure/registry.h"

/* As many attributes as CPython lets the instances of a type share. */
#define FJ_FIELDS_INLINE 30

typedef struct {
    PyObject **values; /* borrowed; NULL when the attributes are in `dict` */
    PyObject *dict;    /* borrowed; NULL when there are no attributes at all */
    Py_ssize_t used;   /* how many attributes are set */
    int python_free;   /* reading runs no Python code: all names are exactly str */
} FjFieldView;

/* 0, or -1 with MemoryError.  Runs no Python code. */
int fj_fields_view(PyObject *object, FjFieldView *view);

/* The values of an instance that keeps them in an array, borrowed, and how many are set; NULL
 * for others. */
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

/* Looks for the place of field `i` among the keys that the type shares; -1 if it has none. */
Py_ssize_t fj_fields_learn_place(FjNodeKind *kind, Py_ssize_t i);

/* Whether the fields stand first among the values, in their own order, for all that have been
 * looked for so far. */
static inline int
fj_fields_in_order(const FjNodeKind *kind)
{
    return kind->in_order == kind->dynamic + kind->statics;
}

/* Field `i`, borrowed; NULL without an error when it is not there.  Runs Python code only
 * where the view is not plain. */
static inline PyObject *
fj_fields_peek(const FjFieldView *view, FjNodeKind *kind, Py_ssize_t i)
{
    if (FJ_LIKELY(view->values != NULL)) {
        Py_ssize_t place = kind->places[i];
        if (FJ_UNLIKELY(place < 0)) {
            place = fj_fields_learn_place(kind, i);
        }
        return place < 0 ? NULL : view->values[place];
    }
    return view->dict == NULL
               ? NULL
               : PyDict_GetItemWithError(view->dict, PyTuple_GET_ITEM(kind->names, i));
}

/* Field `i` as a new reference: 1, or 0 when it is not there (or `missing` stands for it),
 * or -1 with an error. */
int fj_fields_get(PyObject *object, FjNodeKind *kind, Py_ssize_t i, PyObject *missing,
                  PyObject **value);

/* The first `count` fields as new references, NULL for one that is not there.  0, or -1 with
 * an error and none of them. */
int fj_fields_get_all(PyObject *object, FjNodeKind *kind, Py_ssize_t count, PyObject *missing,
                      PyObject **values);

/* Sets all fields of an instance that was just allocated; steals `values`, where NULL stands
 * for a field that is not there.  Otherwise as fj_fields_set_fresh. */
int fj_fields_fill_fresh(PyObject *object, FjNodeKind *kind, PyObject *const *values,
                         Py_ssize_t count);

/* Sets field `i` of an instance that was just allocated, as object.__setattr__ would; steals
 * `value`.  0, or -1 with an error.  Runs Python code only where the class has a descriptor in
 * the field's place. */
int fj_fields_set_fresh(PyObject *object, FjNodeKind *kind, Py_ssize_t i, PyObject *value);

/* 1 when the instance has another number of attributes than of fields: then, as in Equinox, it
 * counts as one that wraps something, and the attributes of what it wraps belong to it, those
 * that are not there included.  0, or -1 with MemoryError. */
int fj_fields_has_wrapper(PyObject *object, const FjNodeKind *kind);

#endif
