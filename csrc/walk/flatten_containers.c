/* How each kind of container is flattened (flatten.c): which children it has, and what its
 * node has besides.
 *
 * Python code can run in comparisons of dict keys that are sorted, the functions of custom
 * nodes, `describe`, getattr for objects, and finalizers, and wherever a child is walked.
 */
#include "walk/flatten_walk.h"

#include "base/scratch.h"
#include "structure/fields.h"
#include "structure/statics.h"

/* (P) Adds the path of `object`, which gets no node of its own, to the current exception. */
static void
add_error_context_here(FjFlattener *f, PyObject *object, const char *operation)
{
    PyObject *exception = fj_compat_take_exception();
    Py_ssize_t index = fj_structure_append(f->structure, FJ_MISSING, 0, NULL, object);
    PyErr_Clear(); /* without memory for the path, the exception goes without it */
    fj_compat_give_exception(exception);
    if (index >= 0) {
        fj_structure_add_error_context(f->structure, (uint32_t)index, operation);
    }
}

/* Whether the tuple whose node has just been closed can never change: see structure.h. */
static int
is_constant(const FjStructure *structure, uint32_t index)
{
    uint32_t end = structure->info[index].subtree_end;
    if (structure->nodes[index].flags & FJ_NODE_LEAVES) {
        return 0;
    }
    for (uint32_t i = index + 1; i < end; i = structure->info[i].subtree_end) {
        const FjNode *child = &structure->nodes[i];
        if (!(child->code == FJ_NONE ||
              (child->code == FJ_STATIC && child->flags & FJ_NODE_SELF_EQUAL) ||
              (child->code == FJ_TUPLE && child->aux != NULL))) {
            return 0;
        }
    }
    return 1;
}

/* Pushes all `items` if a prefix has leaves in their places, or if the registry has
 * classified their types, and each item is a leaf, so that they need no nodes.  Runs no Python
 * code.  1 if it has pushed them, 0 if not, or -1 with an error. */
static int
add_leaves(FjFlattener *f, PyObject *const *items, Py_ssize_t count)
{
    const PyTypeObject *last = NULL;
    Py_ssize_t before = f->arrays->count;
    if (f->expected != NULL) {
        return fj_expected_has_leaves(f->expected)
                   ? (fj_leafbuf_extend(f->arrays, items, count) < 0 ? -1 : 1)
                   : 0;
    }
    if (f->is_leaf != NULL || count == 0) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTypeObject *type = Py_TYPE(items[i]);
        if (FJ_UNLIKELY(type != last)) {
            FjNodeKind *kind = fj_registry_cached_kind(fj_flatten_registry(f), type);
            if (kind == NULL || !(kind->code == FJ_ARRAY || kind->code == FJ_STATIC ||
                                  kind->code == FJ_MAYBE_ARRAY ||
                                  (kind->code == FJ_NONE && f->none_is_leaf))) {
                /* The tree holds the items too, so that dropping them runs no Python code. */
                fj_leafbuf_truncate(f->arrays, before);
                return 0;
            }
            last = type;
            if (i == 0 && fj_leafbuf_reserve(f->arrays, count) < 0) {
                return -1;
            }
        }
        if (fj_leafbuf_push(f->arrays, items[i]) < 0) {
            return -1;
        }
    }
    f->structure->all_leaves += count;
    f->structure->open_leaves += count;
    return 1;
}

/* Removes the children's nodes of a tuple or list if all its children are leaves, and sets
 * FJ_NODE_LEAVES.  The children have nodes if their types were not classified yet in
 * add_leaves, or if there is an `is_leaf`; equal trees must have equal Structures in any case.
 */
static void
remove_leaf_nodes(FjFlattener *f, Py_ssize_t index)
{
    FjStructure *structure = f->structure;
    FjNode *node = &structure->nodes[index];
    uint32_t first = (uint32_t)index + 1;
    if (node->arity == 0 || structure->count - first != node->arity) {
        return;
    }
    for (uint32_t i = first; i < structure->count; i++) {
        if (structure->nodes[i].code != FJ_ARRAY) {
            return;
        }
    }
    structure->count = first;
    node->flags |= FJ_NODE_LEAVES;
}

/* Raises a RuntimeError: other code has changed the object during the walk.  Where the walk
 * compares exactly, it differs from what is expected instead.  Always -1. */
static int
raise_changed(FjFlattener *f, PyObject *object)
{
    if (f->expected != NULL && f->expected->name == NULL) {
        f->expected->differs = 1;
        return -1;
    }
    PyErr_Format(PyExc_RuntimeError, "`%.200s` changed while it was flattened",
                 Py_TYPE(object)->tp_name);
    return -1;
}

/* Walks the items of a tuple or list, which the caller holds. */
static inline int
walk_items(FjFlattener *f, PyObject *items, Py_ssize_t size)
{
    if (PyTuple_Check(items)) {
        for (Py_ssize_t i = 0; i < size; i++) {
            if (fj_flatten_object(f, PyTuple_GET_ITEM(items, i)) < 0) {
                return -1;
            }
        }
        return 0;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (PyList_GET_SIZE(items) != size) {
            return raise_changed(f, items);
        }
        PyObject *item = Py_NewRef(PyList_GET_ITEM(items, i));
        int result = fj_flatten_object(f, item);
        Py_DECREF(item);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

/* Walks a tuple, a named tuple, which has a `kind`, or a list.  The items of a list that
 * another thread may change are those of one moment, in a tuple. */
static int
walk_sequence(FjFlattener *f, FjKindCode code, PyObject *sequence, FjNodeKind *kind)
{
    if (FJ_UNLIKELY(f->expected != NULL) && fj_expected_skip(f->expected, sequence)) {
        return 0;
    }
    PyObject *items = sequence, *copy = NULL;
    if (FJ_FREE_THREADED && code == FJ_LIST) {
        items = copy = PyList_AsTuple(sequence);
        if (copy == NULL) {
            return -1;
        }
    }
    Py_ssize_t size = Py_SIZE(items);
    Py_ssize_t index = fj_flatten_open(f, code, size, kind == NULL ? NULL : Py_TYPE(sequence),
                                       (PyObject *)kind, 0);
    int may_be_leaves = f->is_tree_structure && kind == NULL;
    int result = index < 0 ? -1 : 0;
    if (result == 0 && may_be_leaves) {
        result = add_leaves(f, PySequence_Fast_ITEMS(items), size);
    }
    int are_leaves = result > 0;
    if (result == 0) {
        result = walk_items(f, items, size);
    }
    Py_XDECREF(copy);
    if (result < 0 || f->expected != NULL) {
        return result < 0 ? -1 : 0;
    }
    if (are_leaves) {
        f->structure->nodes[index].flags |= FJ_NODE_LEAVES;
    }
    else if (may_be_leaves) {
        remove_leaf_nodes(f, index);
    }
    fj_structure_close(f->structure, index);
    if (code == FJ_TUPLE && is_constant(f->structure, (uint32_t)index)) {
        f->structure->nodes[index].aux = Py_NewRef(sequence);
    }
    return 0;
}

/* The keys of a dict for a new node: a new tuple. */
static PyObject *
dict_keys(FjFlattener *f, FjKindCode code, PyObject *dict)
{
    PyObject *keys = fj_sorted_keys(code, dict);
    if (keys == NULL) {
        add_error_context_here(f, dict, "sort");
    }
    return keys;
}

/* Walks the values of a dict, which are static fields if `is_static`. */
static int
walk_dict_values(FjFlattener *f, PyObject *dict, PyObject *keys, int is_static)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *value = fj_compat_dict_get(dict, PyTuple_GET_ITEM(keys, i));
        if (value == NULL) { /* where it is compared, it has other keys */
            return PyErr_Occurred() ? -1 : raise_changed(f, dict);
        }
        int result = is_static ? fj_flatten_field(f, value) : fj_flatten_object(f, value);
        Py_DECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

int
fj_flatten_dict(FjFlattener *f, FjKindCode code, PyObject *dict, int is_static)
{
    int result = -1;
    PyObject *factory = NULL;
    PyObject *keys = f->expected != NULL ? fj_expected_keys(f->expected, code, dict)
                                         : dict_keys(f, code, dict);
    if (keys == NULL) {
        return -1;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(keys);
    int has_factory = code == FJ_DEFAULT_DICT, plain = FJ_NODE_PLAIN_KEYS;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i);
        plain = PyUnicode_CheckExact(key) || PyLong_CheckExact(key) ? plain : 0;
    }
    Py_ssize_t index =
        fj_flatten_open(f, code, size + has_factory, Py_TYPE(dict), keys, plain);
    if (index < 0) {
        goto done;
    }
    fj_flatten_runs_python(f, !plain || code == FJ_ORDERED_DICT);
    if (has_factory) {
        factory = PyObject_GetAttrString(dict, "default_factory");
        if (factory == NULL || fj_flatten_field(f, factory) < 0) {
            goto done;
        }
    }
    result = walk_dict_values(f, dict, keys, is_static) < 0 ? -1 : fj_flatten_close(f, index);
done:
    Py_XDECREF(factory);
    Py_DECREF(keys);
    return result;
}

/* Walks field `i` of a Module or object; `value` is NULL if it is absent. */
static int
walk_field(FjFlattener *f, const FjNodeKind *kind, Py_ssize_t i, PyObject *value)
{
    return value == NULL       ? fj_flatten_nothing(f, FJ_MISSING)
           : i < kind->dynamic ? fj_flatten_object(f, value)
                               : fj_flatten_field(f, value);
}

static int
walk_module(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    PyObject *room[FJ_FIELDS_INLINE];
    int result = -1;
    int wrapper = fj_fields_is_wrapper(object, kind);
    if (wrapper < 0) {
        return -1;
    }
    Py_ssize_t count = fj_node_kind_fields(kind) + (wrapper ? kind->extra_names : 0);
    PyObject **values = fj_scratch_new(room, FJ_FIELDS_INLINE, count);
    if (values == NULL) {
        return -1;
    }
    Py_ssize_t index = fj_flatten_open(f, FJ_MODULE, count, Py_TYPE(object), (PyObject *)kind,
                                       wrapper ? FJ_NODE_WRAPPER : 0);
    if (index < 0 ||
        fj_fields_get_all(object, kind, count, fj_registry_missing(fj_flatten_registry(f)),
                          values) < 0) {
        goto done;
    }
    result = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (result == 0) {
            result = walk_field(f, kind, i, values[i]);
        }
        Py_XDECREF(values[i]);
    }
    if (result == 0) {
        fj_flatten_close(f, index);
    }
done:
    fj_scratch_free(values, room);
    return result;
}

/* Whether the values of the dict fields are dicts, as they are in all instances that were made
 * as their class intends.  1, 0, or -1 with an error. */
static int
holds_dicts(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    if (f->expected != NULL && f->expected->name == NULL) { /* walk_object looks at them */
        return f->expected->next->code == FJ_OBJECT;
    }
    for (Py_ssize_t i = 0; i < fj_node_kind_fields(kind); i++) {
        if (kind->dict_fields[i]) {
            PyObject *value = fj_fields_getattr(object, kind, i);
            int is_dict = value != NULL && PyDict_CheckExact(value);
            Py_XDECREF(value);
            if (!is_dict) {
                return value == NULL ? -1 : 0;
            }
        }
    }
    return 1;
}

static int
walk_object(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    Py_ssize_t count = fj_node_kind_fields(kind);
    Py_ssize_t index = fj_flatten_open(f, FJ_OBJECT, count, kind->type, (PyObject *)kind, 0);
    if (index < 0) {
        return -1;
    }
    fj_flatten_runs_python(f, !fj_fields_are_plain(kind));
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = fj_fields_getattr(object, kind, i);
        int result = -1;
        if (value != NULL && kind->dict_fields[i]) {
            result = PyDict_CheckExact(value)
                         ? fj_flatten_dict(f, FJ_DICT, value, i >= kind->dynamic)
                         : raise_changed(f, object);
        }
        else if (value != NULL) {
            result = walk_field(f, kind, i, value);
        }
        Py_XDECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return fj_flatten_close(f, index);
}

/* Whether `keys` are the keys of `count` children, in the form that fj_children_key returns.
 */
static int
are_keys(PyObject *keys, Py_ssize_t count)
{
    if (PyTuple_GET_SIZE(keys) != count) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i);
        if (!PyUnicode_CheckExact(key) &&
            !(PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 1)) {
            return 0;
        }
    }
    return 1;
}

/* walk_custom where the node is compared with another, which needs no keys. */
static int
compare_custom(FjFlattener *f, PyObject *object)
{
    PyObject *children, *aux;
    PyObject *parts = fj_registry_flatten(fj_flatten_registry(f), object, &children, &aux);
    PyObject *items = parts == NULL ? NULL : fj_tuple_of(children);
    Py_ssize_t size = items == NULL ? 0 : PyTuple_GET_SIZE(items);
    int result =
        items == NULL ? -1 : fj_expected_open_custom(f->expected, size, Py_TYPE(object), aux);
    if (result == 0) {
        result = walk_items(f, items, size);
    }
    Py_XDECREF(items);
    Py_XDECREF(parts);
    return result;
}

static int
walk_custom(FjFlattener *f, PyObject *object, const FjNodeKind *kind)
{
    if (f->expected != NULL) {
        return compare_custom(f, object);
    }
    int result = -1;
    PyObject *children = NULL, *aux = NULL, *unflatten = NULL, *keys = NULL, *details = NULL;
    PyObject *parts =
        PyObject_CallOneArg(fj_flatten_registry(f)->types->flatten_with_keys, object);
    if (parts == NULL) {
        add_error_context_here(f, object, "flatten");
        return -1;
    }
    if (!fj_expect_tuple(parts, "flatten_with_keys") ||
        !PyArg_ParseTuple(
            parts, "O!OOO!;flatten_with_keys() must return (children, aux, unflatten, keys)",
            &PyTuple_Type, &children, &aux, &unflatten, &PyTuple_Type, &keys)) {
        goto done;
    }
    if (!are_keys(keys, PyTuple_GET_SIZE(children))) {
        PyErr_SetString(PyExc_ValueError,
                        "flatten_with_keys() must return a key for each child");
        goto done;
    }
    details = PyTuple_Pack(3, aux, unflatten, keys);
    if (details == NULL) {
        goto done;
    }
    int immutable = fj_static_is_immutable(fj_flatten_registry(f), aux);
    if (immutable < 0) {
        goto done;
    }
    int is_itself = kind->is_itself && aux == object && PyTuple_GET_SIZE(children) == 0;
    int flags = (immutable ? FJ_NODE_SELF_EQUAL : 0) | (is_itself ? FJ_NODE_ITSELF : 0);
    Py_ssize_t index = fj_flatten_open(f, FJ_CUSTOM, PyTuple_GET_SIZE(children),
                                       Py_TYPE(object), details, flags);
    if (index < 0) {
        goto done;
    }
    fj_flatten_runs_python(f, !is_itself);
    result = walk_items(f, children, PyTuple_GET_SIZE(children));
    if (result == 0) {
        fj_flatten_close(f, index);
    }
done:
    Py_XDECREF(details);
    Py_DECREF(parts);
    return result;
}

static int
walk_described(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    /* An instance is not asked for what is expected. */
    FjNodeKind *described = f->expected == NULL ? NULL : fj_expected_kind(f->expected);
    Py_XINCREF(described);
    if (described == NULL && fj_node_kind_described(kind, object, &described) < 0) {
        return -1;
    }
    if (described == NULL) {
        return walk_custom(f, object, kind);
    }
    int is_other = fj_fields_is_wrapper(object, described); /* has more or fewer attributes */
    int result = is_other < 0 ? -1
                 : is_other   ? raise_changed(f, object)
                              : walk_module(f, object, described);
    Py_DECREF(described);
    return result;
}

int
fj_flatten_container(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    int holds;
    switch (kind->code) {
    case FJ_TUPLE:
    case FJ_LIST:
        return walk_sequence(f, kind->code, object, NULL);
    case FJ_NAMEDTUPLE:
        return walk_sequence(f, FJ_NAMEDTUPLE, object, kind);
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        return fj_flatten_dict(f, kind->code, object, 0);
    case FJ_MODULE:
        return walk_module(f, object, kind);
    case FJ_OBJECT:
        holds = holds_dicts(f, object, kind);
        return holds < 0   ? -1
               : holds > 0 ? walk_object(f, object, kind)
                           : walk_custom(f, object, kind);
    case FJ_DESCRIBED:
        return walk_described(f, object, kind);
    default:
        return walk_custom(f, object, kind);
    }
}
