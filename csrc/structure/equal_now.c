/* Whether two static values are equal now, without a snapshot of either where that can be
 * seen: contents.h.
 *
 * fj_contents_equal calls the keys and the __eq__ of values that have no contents, unless it
 * is to be python_free.  It holds what it looks at, and checks sizes again after each item.
 */
#include "structure/contents.h"
#include "structure/fields.h"
#include "structure/static_rule.h"
#include "structure/statics.h"

/* Field `i` of an object: a new reference; NULL without an error if it is not where it is
 * stored.  Runs no Python code. */
static PyObject *
read_field(PyObject *object, FjNodeKind *kind, Py_ssize_t i)
{
    FjFieldView view;
    if (Py_TYPE(object) != kind->type || !fj_fields_are_plain(kind) ||
        !fj_fields_view_stored(object, kind, &view)) {
        return NULL;
    }
    return Py_XNewRef(fj_fields_peek_object(object, &view, kind, i));
}

/* (P) Whether the snapshots of two values are equal.  1, 0, or -1 with an error. */
static int
equal_snapshots(FjRegistry *registry, PyObject *a, PyObject *b)
{
    PyObject *x = fj_static_snapshot(registry, a, 1);
    PyObject *y = x == NULL ? NULL : fj_static_snapshot(registry, b, 1);
    int same = y == NULL ? -1 : fj_static_equal(registry, x, y);
    Py_XDECREF(x);
    Py_XDECREF(y);
    return same;
}

/* fj_contents_equal for items, of which the references are stolen.  NULL is not equal to
 * anything. */
static int
equal_stolen(FjRegistry *registry, PyObject *a, PyObject *b, int python_free)
{
    int same = a == NULL || b == NULL ? 0 : fj_contents_equal(registry, a, b, python_free);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return same;
}

static int
equal_tuples(FjRegistry *registry, PyObject *a, PyObject *b, int python_free)
{
    int same = PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a) && same > 0; i++) {
        same = fj_contents_equal(registry, PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i),
                                 python_free);
    }
    return same;
}

static int
equal_lists(FjRegistry *registry, PyObject *a, PyObject *b, int python_free)
{
    int same = PyList_GET_SIZE(a) == PyList_GET_SIZE(b);
    for (Py_ssize_t i = 0; same > 0 && i < PyList_GET_SIZE(a); i++) {
        same = PyList_GET_SIZE(a) != PyList_GET_SIZE(b)
                   ? 0
                   : equal_stolen(registry, Py_NewRef(PyList_GET_ITEM(a, i)),
                                  Py_NewRef(PyList_GET_ITEM(b, i)), python_free);
    }
    return same > 0 ? PyList_GET_SIZE(a) == PyList_GET_SIZE(b) : same;
}

static int
equal_dicts(FjRegistry *registry, PyObject *a, PyObject *b, int python_free)
{
    PyObject *key, *value, *other_key, *other;
    Py_ssize_t size = PyDict_GET_SIZE(a), at = 0, other_at = 0;
    int same = PyDict_GET_SIZE(b) == size;
    for (Py_ssize_t i = 0; i < size && same > 0; i++) {
        if (PyDict_GET_SIZE(a) != size || PyDict_GET_SIZE(b) != size ||
            !fj_compat_dict_next(a, &at, &key, &value) ||
            !fj_compat_dict_next(b, &other_at, &other_key, &other)) {
            return 0;
        }
        Py_INCREF(value);
        Py_INCREF(other);
        same = equal_stolen(registry, Py_NewRef(key), Py_NewRef(other_key), python_free);
        if (same > 0) {
            same = fj_contents_equal(registry, value, other, python_free);
        }
        Py_DECREF(value);
        Py_DECREF(other);
    }
    return same > 0 ? PyDict_GET_SIZE(a) == size && PyDict_GET_SIZE(b) == size : same;
}

/* Whether all fields are equal; 0 also where one cannot be read. */
static int
equal_fields(FjRegistry *registry, PyObject *a, PyObject *b, FjNodeKind *kind, int python_free)
{
    int same = 1;
    for (Py_ssize_t i = 0; i < fj_node_kind_fields(kind) && same > 0; i++) {
        same = equal_stolen(registry, read_field(a, kind, i), read_field(b, kind, i),
                            python_free);
    }
    return same > 0 ? Py_TYPE(a) == kind->type && fj_fields_are_plain(kind) : same;
}

/* Whether the key of `b` equals `key`, which is stolen; NULL is an error that is passed on. */
static int
equal_keys(FjRegistry *registry, PyObject *key, const FjNodeKind *kind, PyObject *b)
{
    PyObject *other = key == NULL ? NULL : fj_static_key(kind, b);
    if (other == NULL) {
        Py_XDECREF(key);
        return -1;
    }
    return equal_stolen(registry, key, other, 0);
}

static int
equal_by_type(FjRegistry *registry, PyObject *a, PyObject *b, int python_free)
{
    int same;
    FjNodeKind *kind = fj_static_kind(registry, Py_TYPE(a));
    if (kind == NULL || (kind->contents == NULL && !kind->key_is_contents)) {
        return python_free ? 0 : equal_snapshots(registry, a, b);
    }
    Py_INCREF(kind);
    if (kind->contents != NULL) {
        same = equal_fields(registry, a, b, kind->contents, python_free);
    }
    else {
        same = python_free ? 0 : equal_keys(registry, fj_static_key(kind, a), kind, b);
    }
    Py_DECREF(kind);
    return same;
}

/* fj_contents_equal for two objects of one type, which are not inert. */
static int
equal_containers(FjRegistry *registry, PyObject *a, PyObject *b, FjStaticRule rule,
                 int python_free)
{
    switch (rule) {
    case FJ_TUPLE_ITEMS:
        if (Py_TYPE(a) == registry->state->snapshot) {
            return fj_static_is_identity(registry, a) && fj_static_equal(registry, a, b);
        }
        return equal_tuples(registry, a, b, python_free);
    case FJ_LIST_ITEMS:
        return equal_lists(registry, a, b, python_free);
    case FJ_DICT_ITEMS:
        return equal_dicts(registry, a, b, python_free);
    case FJ_SET_ITEMS:
        return python_free ? 0 : equal_snapshots(registry, a, b);
    default:
        return equal_by_type(registry, a, b, python_free);
    }
}

int
fj_contents_equal(FjRegistry *registry, PyObject *a, PyObject *b, int python_free)
{
    PyTypeObject *type = Py_TYPE(a);
    if (a == b) {
        return 1;
    }
    if (type != Py_TYPE(b)) {
        return 0;
    }
    FjStaticRule rule = fj_static_rule(registry, type);
    if (fj_static_rule_is_inert(rule)) {
        return fj_static_equal(registry, a, b);
    }
    if (Py_EnterRecursiveCall(" while comparing static values")) {
        PyErr_Clear(); /* a snapshot raises it again, if they are too deep for that */
        return 0;
    }
    int same = equal_containers(registry, a, b, rule, python_free);
    Py_LeaveRecursiveCall();
    return same;
}

int
fj_static_equal_now(FjRegistry *registry, PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    int same = fj_contents_equal(registry, a, b, 0);
    return same != 0 ? same : equal_snapshots(registry, a, b);
}
