/* Snapshots of static values; statics.h has the rule.
 *
 * The snapshot of a value is the value itself if nothing in it needs to be copied.
 * Otherwise it is a Snapshot, a tuple of the value's type and of the snapshots of its parts:
 *
 *     [8, 4]                               Snapshot(list, 8, 4)
 *     (1, [2])                             Snapshot(tuple, 1, Snapshot(list, 2))
 *     {"a": 1}                             Snapshot(dict, ("a", 1))
 *     a value v whose type has a key       Snapshot(type(v), key(v))
 *     fj_static_identity(v)                Snapshot(Snapshot, v): v is not copied
 *     x, if x = [x]                        Snapshot(list, Snapshot(Ellipsis, 1)): 1 level up
 *
 * Python code can run in the __hash__ of values, in keys, and in classify() for a type that
 * the Registry has no kind for.  Snapshots hold their parts and are immutable, so the
 * parts live as long.
 */
#include "structure/static_rule.h"
#include "structure/statics.h"

PyObject *
fj_static_elements(PyObject *value, FjStaticRule rule)
{
    if (rule == FJ_TUPLE_ITEMS) {
        return Py_NewRef(value);
    }
    if (rule == FJ_SET_ITEMS &&
        !PyAnySet_CheckExact(value)) { /* whatever its `__iter__` says */
        PyObject *iterator = PyFrozenSet_Type.tp_iter(value);
        PyObject *items = iterator == NULL ? NULL : fj_tuple_of(iterator);
        Py_XDECREF(iterator);
        return items;
    }
    if (rule != FJ_DICT_ITEMS) {
        return fj_tuple_of(value);
    }
    PyObject *items = PyDict_Items(value);
    PyObject *tuple = items == NULL ? NULL : PyList_AsTuple(items);
    Py_XDECREF(items);
    return tuple;
}

static int
snapshot_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return PyTuple_Type.tp_traverse(op, visit, arg);
}

static PyType_Slot snapshot_slots[] = {
    {Py_tp_doc, "The contents of a static value at one moment; private."},
    {Py_tp_traverse, snapshot_traverse},
    {0, NULL},
};

PyType_Spec fj_snapshot_spec = {
    .name = "filterjit._core.Snapshot",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = snapshot_slots,
};

/* A new Snapshot with `first` as its first item and room for `count` parts. */
static PyObject *
new_snapshot(FjState *state, PyObject *first, Py_ssize_t count)
{
    PyObject *snapshot = fj_compat_tuple_alloc(state->snapshot, count + 1);
    if (snapshot != NULL) {
        PyTuple_SET_ITEM(snapshot, 0, Py_NewRef(first));
    }
    return snapshot;
}

PyObject *
fj_static_identity(FjState *state, PyObject *value)
{
    PyObject *snapshot = new_snapshot(state, (PyObject *)state->snapshot, 1);
    if (snapshot != NULL) {
        PyTuple_SET_ITEM(snapshot, 1, Py_NewRef(value));
    }
    return snapshot;
}

int
fj_static_is_identity(const FjRegistry *registry, PyObject *snapshot)
{
    return PyTuple_GET_ITEM(snapshot, 0) == (PyObject *)registry->state->snapshot;
}

/* The values whose snapshots are being taken: each one contains those before it in the list.
 */
typedef struct Ancestors {
    PyObject *value;
    const struct Ancestors *next;
} Ancestors;

/* How many levels above `value` stands in itself; 0 if it does not. */
static Py_ssize_t
levels_up(const Ancestors *ancestors, PyObject *value)
{
    Py_ssize_t levels = 1;
    for (; ancestors != NULL; ancestors = ancestors->next, levels++) {
        if (ancestors->value == value) {
            return levels;
        }
    }
    return 0;
}

/* What stands for a value that is in a value that it contains. */
static PyObject *
snapshot_ancestor(FjState *state, Py_ssize_t levels)
{
    PyObject *number = PyLong_FromSsize_t(levels);
    PyObject *snapshot = number == NULL ? NULL : new_snapshot(state, Py_Ellipsis, 1);
    if (snapshot == NULL) {
        Py_XDECREF(number);
        return NULL;
    }
    PyTuple_SET_ITEM(snapshot, 1, number);
    return snapshot;
}

static PyObject *snapshot_in(FjRegistry *registry, PyObject *value, int field,
                             const Ancestors *ancestors);

/* Sets `*key` to the key function of the value's type; a new reference, or NULL if the type
 * has none.  0, or -1 with an error. */
static int
key_function(FjRegistry *registry, PyObject *value, PyObject **key)
{
    *key = fj_static_registered_key(registry, Py_TYPE(value));
    Py_XINCREF(*key);
    if (*key == NULL) {
        FjNodeKind *kind = fj_registry_kind(registry, value);
        if (kind == NULL) {
            return -1;
        }
        *key = Py_XNewRef(kind->key);
        Py_DECREF(kind);
    }
    return 0;
}

static int
has_no_hash(PyObject *value)
{
    return Py_TYPE(value)->tp_hash == PyObject_HashNotImplemented;
}

/* The snapshot of `value`, which has this key; a new reference. */
static PyObject *
snapshot_key(FjRegistry *registry, PyObject *value, PyObject *key, const Ancestors *ancestors)
{
    PyObject *part = snapshot_in(registry, key, 1, ancestors);
    PyObject *snapshot =
        part == NULL ? NULL : new_snapshot(registry->state, (PyObject *)Py_TYPE(value), 1);
    if (snapshot == NULL) {
        Py_XDECREF(part);
        return NULL;
    }
    PyTuple_SET_ITEM(snapshot, 1, part);
    return snapshot;
}

/* The snapshot of a field whose type has an __eq__ of its own and no key: the value itself,
 * or its identity if it cannot be hashed. */
static PyObject *
snapshot_unknown_field(FjState *state, PyObject *value)
{
    if (!has_no_hash(value) && PyObject_Hash(value) != -1) {
        return Py_NewRef(value);
    }
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
            return NULL;
        }
        PyErr_Clear();
    }
    return fj_static_identity(state, value);
}

/* fj_static_snapshot for values with the rule FJ_BY_TYPE. */
static PyObject *
snapshot_by_type(FjRegistry *registry, PyObject *value, int field, const Ancestors *ancestors)
{
    PyObject *function, *snapshot = NULL;
    if (key_function(registry, value, &function) < 0) {
        return NULL;
    }
    if (function == NULL) {
        return field ? snapshot_unknown_field(registry->state, value) : Py_NewRef(value);
    }
    /* A leaf must be hashable itself; its key need not be. */
    if (field || PyObject_Hash(value) != -1) {
        PyObject *key = PyObject_CallOneArg(function, value);
        snapshot = key == NULL ? NULL : snapshot_key(registry, value, key, ancestors);
        Py_XDECREF(key);
    }
    Py_DECREF(function);
    return snapshot;
}

/* fj_static_snapshot for containers.  Returns `value` itself if it is immutable and no element
 * needs to be copied. */
static PyObject *
snapshot_elements(FjRegistry *registry, PyObject *value, FjStaticRule rule, int field,
                  const Ancestors *ancestors)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    PyObject *items = fj_static_elements(value, rule);
    if (items == NULL) {
        return NULL;
    }
    int mutable = rule == FJ_LIST_ITEMS || rule == FJ_DICT_ITEMS || PySet_CheckExact(value);
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    PyObject *snapshot =
        mutable ? fj_hide(new_snapshot(registry->state, type, count)) : Py_NewRef(value);
    for (Py_ssize_t i = 0; snapshot != NULL && i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        PyObject *part = snapshot_in(registry, item, field, ancestors);
        if (part != NULL && part != item && snapshot == value) {
            Py_SETREF(snapshot, fj_hide(new_snapshot(registry->state, type, count)));
            for (Py_ssize_t k = 0; snapshot != NULL && k < i; k++) {
                PyTuple_SET_ITEM(snapshot, k + 1, Py_NewRef(PyTuple_GET_ITEM(items, k)));
            }
        }
        if (part == NULL || snapshot == NULL) {
            Py_CLEAR(snapshot);
            Py_XDECREF(part);
        }
        else if (snapshot == value) {
            Py_DECREF(part);
        }
        else {
            PyTuple_SET_ITEM(snapshot, i + 1, part);
        }
    }
    if (snapshot != NULL && snapshot != value) {
        fj_show(snapshot);
    }
    Py_DECREF(items);
    return snapshot;
}

/* fj_static_snapshot for a value inside of `ancestors`. */
static PyObject *
snapshot_in(FjRegistry *registry, PyObject *value, int field, const Ancestors *ancestors)
{
    FjStaticRule rule = fj_static_rule(registry, Py_TYPE(value));
    if (fj_static_rule_is_inert(rule) || Py_TYPE(value) == registry->state->snapshot) {
        return Py_NewRef(value);
    }
    if (!field && (rule == FJ_LIST_ITEMS || rule == FJ_DICT_ITEMS || has_no_hash(value))) {
        (void)PyObject_Hash(value); /* raises */
        return NULL;
    }
    Py_ssize_t levels = levels_up(ancestors, value);
    if (levels > 0) {
        return snapshot_ancestor(registry->state, levels);
    }
    if (Py_EnterRecursiveCall(" while looking at a static value")) {
        return NULL;
    }
    const Ancestors here = {value, ancestors};
    PyObject *snapshot = rule == FJ_BY_TYPE
                             ? snapshot_by_type(registry, value, field, &here)
                             : snapshot_elements(registry, value, rule, field, &here);
    Py_LeaveRecursiveCall();
    return snapshot;
}

PyObject *
fj_static_snapshot(FjRegistry *registry, PyObject *value, int field)
{
    return snapshot_in(registry, value, field, NULL);
}
