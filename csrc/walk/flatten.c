/* The walk of a cache miss, and of all tree functions: flattens a tree of any structure.
 *
 * It asks the registry for the kind of each type that it meets, and writes the nodes of a new
 * Structure.  fj_flatten_up_to compares them with those of a prefix (prefix.h).
 *
 * Python code can run anywhere in this file: `classify` and `is_array` for a type or an
 * instance that is met, the caller's `is_leaf`, comparisons of dict keys that are sorted,
 * the functions of custom nodes, what prefix.c says, `describe`, getattr for objects, and
 * finalizers.  So the walk holds a strong reference to each object while it walks it, and
 * checks sizes again after each child.  It refers to nodes by their index, since the array of
 * nodes moves when it grows.
 */
#include "walk/flatten.h"

#include "base/address_map.h"
#include "base/scratch.h"
#include "structure/fields.h"
#include "structure/statics.h"
#include "walk/prefix.h"

typedef struct {
    FjStructure *structure;
    FjLeafBuf *arrays;
    int is_tree_structure; /* every leaf counts as an array: fj_flatten_leaves */
    int none_is_leaf;
    int array_flags;   /* of the array nodes of this argument: FJ_NODE_NUMBERS or 0 */
    int may_stop;      /* there is an `is_leaf` or a `prefix` */
    PyObject *is_leaf; /* borrowed, or NULL */
    FjPrefix *prefix;  /* for fj_flatten_up_to, or NULL: only its leaves are leaves.  The nodes
                        * of the Structure are those of containers, without their children */
    /* For the arguments of a call: the objects that have a number (Sharing in structure.h), in
     * order, and their numbers. */
    FjLeafBuf *objects; /* or NULL */
    FjAddressMap numbers;
} Walk;

static int walk(Walk *w, PyObject *object);

static FjRegistry *
registry_of(Walk *w)
{
    return w->structure->registry;
}

static int
add_array(Walk *w, PyObject *object)
{
    FjNode *node = fj_structure_add(w->structure, FJ_ARRAY, NULL);
    if (node == NULL) {
        return -1;
    }
    node->flags |= (uint16_t)w->array_flags;
    w->structure->all_leaves++;
    w->structure->open_leaves++;
    return fj_leafbuf_push(w->arrays, object);
}

/* Adds a node for None, or for an absent field or argument. */
static int
add_nothing(Walk *w, FjKindCode code)
{
    if (FJ_UNLIKELY(w->prefix != NULL)) {
        return fj_prefix_pass_nothing(w->prefix, code);
    }
    return fj_structure_add(w->structure, code, NULL) == NULL ? -1 : 0;
}

/* Adds a static that is not inert. */
static FJ_NOINLINE int
add_mutable_static(Walk *w, PyObject *object, int flag)
{
    int is_asked = flag == FJ_NODE_MAYBE_ARRAY;
    int immutable = is_asked ? 0 : fj_static_is_immutable(registry_of(w), object);
    FjNode *node = immutable < 0 ? NULL : fj_structure_add(w->structure, FJ_STATIC, object);
    if (node == NULL) {
        return -1;
    }
    node->flags = (uint16_t)(flag | (immutable ? FJ_NODE_SELF_EQUAL : 0));
    w->structure->may_run_python |= is_asked;
    w->structure->untaken += !is_asked && !immutable;
    return 0;
}

/* Adds a static: a value that is not an array.  `flag` is FJ_NODE_FIELD for a static field,
 * FJ_NODE_MAYBE_ARRAY for a leaf of such a type, FJ_NODE_ARGUMENT for a static argument, or 0
 * for another leaf. */
static int
add_static(Walk *w, PyObject *object, int flag)
{
    if (FJ_UNLIKELY(flag == FJ_NODE_MAYBE_ARRAY ||
                    !fj_static_is_inert(registry_of(w), object))) {
        return add_mutable_static(w, object, flag);
    }
    FjNode *node = fj_structure_add(w->structure, FJ_STATIC, object);
    if (node == NULL) {
        return -1;
    }
    node->flags = (uint16_t)(flag | FJ_NODE_SELF_EQUAL);
    return 0;
}

/* Adds the value of a static field. */
static int
add_field(Walk *w, PyObject *value)
{
    return FJ_UNLIKELY(w->prefix != NULL) ? fj_prefix_pass_static(w->prefix, value)
                                          : add_static(w, value, FJ_NODE_FIELD);
}

/* Appends a node whose children are walked next; fj_structure_close ends it.  Its index, or -1
 * with an error. */
static Py_ssize_t
open_node(Walk *w, FjKindCode code, Py_ssize_t children, PyTypeObject *type, PyObject *aux)
{
    if (FJ_UNLIKELY(w->prefix != NULL) &&
        fj_prefix_open(w->prefix, code, children, type, aux) < 0) {
        return -1;
    }
    return fj_structure_append(w->structure, code, children, type, aux);
}

/* (P) Adds the path of `object`, which gets no node of its own, to the current exception. */
static void
add_error_context_here(Walk *w, PyObject *object, const char *operation)
{
    PyObject *exception = fj_compat_take_exception();
    Py_ssize_t index = fj_structure_append(w->structure, FJ_MISSING, 0, NULL, object);
    PyErr_Clear(); /* without memory for the path, the exception goes without it */
    fj_compat_give_exception(exception);
    if (index >= 0) {
        fj_structure_add_error_context(w->structure, (uint32_t)index, operation);
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

/* Pushes all `items` if the prefix has leaves in their places, or if the registry has
 * classified their types, and each item is a leaf, so that they need no nodes.  Runs no Python
 * code.  1 if it has pushed them, 0 if not, or -1 with an error. */
static int
add_leaves(Walk *w, PyObject *const *items, Py_ssize_t count)
{
    const PyTypeObject *last = NULL;
    Py_ssize_t before = w->arrays->count;
    if (w->prefix != NULL) {
        return fj_prefix_has_leaves(w->prefix)
                   ? (fj_leafbuf_extend(w->arrays, items, count) < 0 ? -1 : 1)
                   : 0;
    }
    if (w->is_leaf != NULL || count == 0) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTypeObject *type = Py_TYPE(items[i]);
        if (FJ_UNLIKELY(type != last)) {
            FjNodeKind *kind = fj_registry_cached_kind(registry_of(w), type);
            if (kind == NULL || !(kind->code == FJ_ARRAY || kind->code == FJ_STATIC ||
                                  kind->code == FJ_MAYBE_ARRAY ||
                                  (kind->code == FJ_NONE && w->none_is_leaf))) {
                /* The tree holds the items too, so that dropping them runs no Python code. */
                fj_leafbuf_truncate(w->arrays, before);
                return 0;
            }
            last = type;
            if (i == 0 && fj_leafbuf_reserve(w->arrays, count) < 0) {
                return -1;
            }
        }
        if (fj_leafbuf_push(w->arrays, items[i]) < 0) {
            return -1;
        }
    }
    w->structure->all_leaves += count;
    w->structure->open_leaves += count;
    return 1;
}

/* Removes the children's nodes of a tuple or list if all its children are leaves, and sets
 * FJ_NODE_LEAVES.  The children have nodes if their types were not classified yet in
 * add_leaves, or if there is an `is_leaf`; equal trees must have equal Structures in any case.
 */
static void
remove_leaf_nodes(Walk *w, Py_ssize_t index)
{
    FjStructure *structure = w->structure;
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

/* Ends the node of a tuple or list, all of whose children have been walked. */
static void
close_sequence(Walk *w, Py_ssize_t index)
{
    if (w->is_tree_structure && w->prefix == NULL) {
        remove_leaf_nodes(w, index);
    }
    fj_structure_close(w->structure, index);
}

static int
walk_tuple(Walk *w, FjKindCode code, PyObject *tuple, FjNodeKind *kind)
{
    Py_ssize_t size = PyTuple_GET_SIZE(tuple);
    Py_ssize_t index = kind == NULL
                           ? open_node(w, code, size, NULL, NULL)
                           : open_node(w, code, size, Py_TYPE(tuple), (PyObject *)kind);
    if (index < 0) {
        return -1;
    }
    if (w->is_tree_structure && code == FJ_TUPLE) {
        int all_leaves = add_leaves(w, ((PyTupleObject *)tuple)->ob_item, size);
        if (all_leaves != 0) {
            w->structure->nodes[index].flags |= FJ_NODE_LEAVES;
            fj_structure_close(w->structure, index);
            return all_leaves < 0 ? -1 : 0;
        }
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (walk(w, PyTuple_GET_ITEM(tuple, i)) < 0) {
            return -1;
        }
    }
    if (code == FJ_NAMEDTUPLE) {
        fj_structure_close(w->structure, index);
        return 0;
    }
    close_sequence(w, index);
    if (is_constant(w->structure, (uint32_t)index)) {
        w->structure->nodes[index].aux = Py_NewRef(tuple);
    }
    return 0;
}

static int
walk_list(Walk *w, PyObject *list)
{
    Py_ssize_t size = PyList_GET_SIZE(list);
    Py_ssize_t index = open_node(w, FJ_LIST, size, NULL, NULL);
    if (index < 0) {
        return -1;
    }
    int all_leaves =
        w->is_tree_structure ? add_leaves(w, ((PyListObject *)list)->ob_item, size) : 0;
    if (all_leaves != 0) {
        w->structure->nodes[index].flags |= FJ_NODE_LEAVES;
        fj_structure_close(w->structure, index);
        return all_leaves < 0 ? -1 : 0;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (PyList_GET_SIZE(list) != size) {
            PyErr_SetString(PyExc_RuntimeError, "list changed size while it was flattened");
            return -1;
        }
        PyObject *item = Py_NewRef(PyList_GET_ITEM(list, i));
        int result = walk(w, item);
        Py_DECREF(item);
        if (result < 0) {
            return -1;
        }
    }
    close_sequence(w, index);
    return 0;
}

/* The keys of a dict as a new tuple: sorted, as in JAX, or in their own order for an
 * OrderedDict. */
static PyObject *
dict_keys(Walk *w, FjKindCode code, PyObject *dict)
{
    PyObject *keys = PySequence_List(dict);
    if (keys == NULL) {
        return NULL;
    }
    if (code != FJ_ORDERED_DICT && PyList_Sort(keys) < 0) {
        Py_DECREF(keys);
        add_error_context_here(w, dict, "sort");
        return NULL;
    }
    PyObject *tuple = PyList_AsTuple(keys);
    Py_DECREF(keys);
    return tuple;
}

/* Walks the values of a dict, which are static fields if `is_static`. */
static int
walk_dict_values(Walk *w, PyObject *dict, PyObject *keys, int is_static)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *value = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(keys, i));
        if (value == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_RuntimeError, "dict changed while it was flattened");
            }
            return -1;
        }
        Py_INCREF(value);
        int result = is_static ? add_field(w, value) : walk(w, value);
        Py_DECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

static int
walk_dict(Walk *w, FjKindCode code, PyObject *dict, int is_static)
{
    int result = -1;
    PyObject *factory = NULL;
    PyObject *keys =
        w->prefix != NULL ? fj_prefix_keys(w->prefix, dict) : dict_keys(w, code, dict);
    if (keys == NULL) {
        return -1;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(keys);
    int has_factory = code == FJ_DEFAULT_DICT;
    Py_ssize_t index = open_node(w, code, size + has_factory, Py_TYPE(dict), keys);
    if (index < 0) {
        goto done;
    }
    int plain = 1;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i);
        plain &= PyUnicode_CheckExact(key) || PyLong_CheckExact(key);
    }
    if (plain) {
        w->structure->nodes[index].flags |= FJ_NODE_PLAIN_KEYS;
    }
    if (!plain || code == FJ_ORDERED_DICT) {
        w->structure->may_run_python = 1;
    }
    if (has_factory) {
        factory = PyObject_GetAttrString(dict, "default_factory");
        if (factory == NULL || add_field(w, factory) < 0) {
            goto done;
        }
    }
    if (walk_dict_values(w, dict, keys, is_static) == 0) {
        fj_structure_close(w->structure, index);
        result = 0;
    }
done:
    Py_XDECREF(factory);
    Py_DECREF(keys);
    return result;
}

/* Walks field `i` of a Module or object; `value` is NULL if it is absent. */
static int
walk_field(Walk *w, const FjNodeKind *kind, Py_ssize_t i, PyObject *value)
{
    return value == NULL       ? add_nothing(w, FJ_MISSING)
           : i < kind->dynamic ? walk(w, value)
                               : add_field(w, value);
}

static int
walk_module(Walk *w, PyObject *object, FjNodeKind *kind)
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
    Py_ssize_t index = open_node(w, FJ_MODULE, count, Py_TYPE(object), (PyObject *)kind);
    if (index < 0 || fj_fields_get_all(object, kind, count,
                                       fj_registry_missing(registry_of(w)), values) < 0) {
        goto done;
    }
    w->structure->nodes[index].flags |= wrapper ? FJ_NODE_WRAPPER : 0;
    result = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (result == 0) {
            result = walk_field(w, kind, i, values[i]);
        }
        Py_XDECREF(values[i]);
    }
    if (result == 0) {
        fj_structure_close(w->structure, index);
    }
done:
    fj_scratch_free(values, room);
    return result;
}

/* Raises a RuntimeError: other code has changed the object during the walk.  Always -1. */
static int
raise_changed(PyObject *object)
{
    PyErr_Format(PyExc_RuntimeError, "`%.200s` changed while it was flattened",
                 Py_TYPE(object)->tp_name);
    return -1;
}

/* Whether the values of the dict fields are dicts, as they are in all instances that were made
 * as their class intends.  1, 0, or -1 with an error. */
static int
holds_dicts(PyObject *object, FjNodeKind *kind)
{
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
walk_object(Walk *w, PyObject *object, FjNodeKind *kind)
{
    Py_ssize_t count = fj_node_kind_fields(kind);
    Py_ssize_t index = open_node(w, FJ_OBJECT, count, kind->type, (PyObject *)kind);
    if (index < 0) {
        return -1;
    }
    w->structure->may_run_python |= !fj_fields_are_plain(kind);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = fj_fields_getattr(object, kind, i);
        int result = -1;
        if (value != NULL && kind->dict_fields[i]) {
            result = PyDict_CheckExact(value)
                         ? walk_dict(w, FJ_DICT, value, i >= kind->dynamic)
                         : raise_changed(object);
        }
        else if (value != NULL) {
            result = walk_field(w, kind, i, value);
        }
        Py_XDECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    fj_structure_close(w->structure, index);
    return 0;
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

/* walk_custom for fj_flatten_up_to, which needs no keys. */
static int
walk_custom_up_to(Walk *w, PyObject *object)
{
    PyObject *children, *aux;
    PyObject *parts = fj_registry_flatten(registry_of(w), object, &children, &aux);
    PyObject *items = parts == NULL ? NULL : fj_tuple_of(children);
    int result =
        items == NULL ? -1 : fj_prefix_open_custom(w->prefix, PyTuple_GET_SIZE(items), aux);
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_GET_SIZE(items); i++) {
        result = walk(w, PyTuple_GET_ITEM(items, i));
    }
    Py_XDECREF(items);
    Py_XDECREF(parts);
    return result;
}

static int
walk_custom(Walk *w, PyObject *object, const FjNodeKind *kind)
{
    if (w->prefix != NULL) {
        return walk_custom_up_to(w, object);
    }
    int result = -1;
    PyObject *children = NULL, *aux = NULL, *unflatten = NULL, *keys = NULL, *details = NULL;
    PyObject *parts = PyObject_CallOneArg(registry_of(w)->types->flatten_with_keys, object);
    if (parts == NULL) {
        add_error_context_here(w, object, "flatten");
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
    Py_ssize_t index =
        open_node(w, FJ_CUSTOM, PyTuple_GET_SIZE(children), Py_TYPE(object), details);
    if (index < 0) {
        goto done;
    }
    int immutable = fj_static_is_immutable(registry_of(w), aux);
    if (immutable < 0) {
        goto done;
    }
    int is_itself = kind->is_itself && aux == object && PyTuple_GET_SIZE(children) == 0;
    w->structure->nodes[index].flags |=
        (uint16_t)((immutable ? FJ_NODE_SELF_EQUAL : 0) | (is_itself ? FJ_NODE_ITSELF : 0));
    w->structure->may_run_python |= !is_itself;
    w->structure->untaken += is_itself && !immutable;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(children); i++) {
        if (walk(w, PyTuple_GET_ITEM(children, i)) < 0) {
            goto done;
        }
    }
    fj_structure_close(w->structure, index);
    result = 0;
done:
    Py_XDECREF(details);
    Py_DECREF(parts);
    return result;
}

static int
walk_described(Walk *w, PyObject *object, FjNodeKind *kind)
{
    FjNodeKind *described;
    if (fj_node_kind_described(kind, object, &described) < 0) {
        return -1;
    }
    if (described == NULL) {
        return walk_custom(w, object, kind);
    }
    int is_other = fj_fields_is_wrapper(object, described); /* has more or fewer attributes */
    int result = is_other < 0 ? -1
                 : is_other   ? raise_changed(object)
                              : walk_module(w, object, described);
    Py_DECREF(described);
    return result;
}

/* Adds a REF to the object that has this number.  0, or -1 with an error. */
static int
add_ref(Walk *w, uint32_t number)
{
    PyObject *aux = PyLong_FromUnsignedLong(number);
    FjNode *node = aux == NULL ? NULL : fj_structure_add(w->structure, FJ_REF, aux);
    Py_XDECREF(aux);
    w->structure->num_refs += node != NULL;
    return node == NULL ? -1 : 0;
}

static int walk_container(Walk *w, PyObject *object, FjNodeKind *kind);

/* Walks an object of a `by_identity` type in the arguments of a call. */
static int
walk_numbered(Walk *w, PyObject *object, FjNodeKind *kind)
{
    Py_ssize_t known = fj_address_map_find(&w->numbers, object);
    if (known >= 0) {
        return add_ref(w, (uint32_t)known);
    }
    uint32_t index = w->structure->count;
    if (fj_address_map_add(&w->numbers, object, w->structure->num_identities) < 0 ||
        fj_leafbuf_push(w->objects, object) < 0) {
        return -1;
    }
    w->structure->num_identities++;
    if (walk_container(w, object, kind) < 0) {
        return -1;
    }
    w->structure->nodes[index].flags |= FJ_NODE_IDENTITY;
    return 0;
}

static int
walk_container(Walk *w, PyObject *object, FjNodeKind *kind)
{
    int holds = kind->code == FJ_OBJECT ? holds_dicts(object, kind) : 0;
    if (holds < 0) {
        return -1;
    }
    switch (kind->code) {
    case FJ_TUPLE:
        return walk_tuple(w, FJ_TUPLE, object, NULL);
    case FJ_NAMEDTUPLE:
        return walk_tuple(w, FJ_NAMEDTUPLE, object, kind);
    case FJ_LIST:
        return walk_list(w, object);
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        return walk_dict(w, kind->code, object, 0);
    case FJ_MODULE:
        return walk_module(w, object, kind);
    case FJ_OBJECT:
        return holds ? walk_object(w, object, kind) : walk_custom(w, object, kind);
    case FJ_DESCRIBED:
        return walk_described(w, object, kind);
    default:
        return walk_custom(w, object, kind);
    }
}

/* Adds an object that `is_leaf` or the prefix takes for a leaf.  1, 0 if it is none, or -1
 * with an error. */
static FJ_NOINLINE int
stop_at_leaf(Walk *w, PyObject *object)
{
    int is_leaf = w->prefix != NULL ? fj_prefix_meet(w->prefix, object)
                                    : fj_take_truth(PyObject_CallOneArg(w->is_leaf, object));
    if (is_leaf <= 0) {
        return is_leaf;
    }
    int result = w->prefix != NULL ? fj_leafbuf_push(w->arrays, object) : add_array(w, object);
    return result < 0 ? -1 : 1;
}

/* The code of a kind under the policy, in this argument. */
static inline FjKindCode
code_of(const Walk *w, const FjNodeKind *kind)
{
    const FjRegistry *registry = w->structure->registry;
    return FJ_UNLIKELY(w->array_flags != 0) && kind->code == FJ_STATIC &&
                   fj_registry_traces_in(registry, kind->type)
               ? FJ_ARRAY
               : fj_registry_code(registry, kind);
}

/* The caller holds `object`. */
static int
walk(Walk *w, PyObject *object)
{
    if (FJ_UNLIKELY(w->may_stop)) {
        int stopped = stop_at_leaf(w, object);
        if (stopped != 0) {
            return stopped < 0 ? -1 : 0;
        }
    }
    /* Adding an array or a static runs no Python code, so a borrowed kind is safe here. */
    FjNodeKind *kind = fj_registry_cached_kind(registry_of(w), Py_TYPE(object));
    if (FJ_LIKELY(kind != NULL && (kind->code == FJ_ARRAY || kind->code == FJ_STATIC))) {
        return w->is_tree_structure || code_of(w, kind) == FJ_ARRAY ? add_array(w, object)
                                                                    : add_static(w, object, 0);
    }
    kind = fj_registry_kind(registry_of(w), object);
    if (kind == NULL) {
        return -1;
    }
    int result;
    switch (code_of(w, kind)) {
    case FJ_ARRAY:
        result = add_array(w, object);
        break;
    case FJ_STATIC:
        result = w->is_tree_structure ? add_array(w, object) : add_static(w, object, 0);
        break;
    case FJ_NONE:
        result = w->none_is_leaf ? add_array(w, object) : add_nothing(w, FJ_NONE);
        break;
    case FJ_MAYBE_ARRAY:
        result = w->is_tree_structure ? 1 : fj_registry_is_array(registry_of(w), object);
        if (result >= 0) {
            result =
                result ? add_array(w, object) : add_static(w, object, FJ_NODE_MAYBE_ARRAY);
        }
        break;
    default:
        result = -1;
        if (Py_EnterRecursiveCall(" while flattening a pytree: it is too deep, or a cycle") ==
            0) {
            result = w->objects != NULL && registry_of(w)->by_identity != NULL &&
                             fj_registry_is_by_identity(registry_of(w), kind->type)
                         ? walk_numbered(w, object, kind)
                         : walk_container(w, object, kind);
            Py_LeaveRecursiveCall();
        }
    }
    Py_DECREF(kind);
    return result;
}

/* Walks `tree` and returns `w->structure`, or NULL with an error. */
static FjStructure *
walk_tree(Walk *w, PyObject *tree)
{
    if (w->structure != NULL && walk(w, tree) < 0) {
        Py_CLEAR(w->structure);
    }
    return w->structure;
}

FjStructure *
fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays)
{
    Walk w = {.structure = fj_structure_new(registry), .arrays = arrays};
    if (walk_tree(&w, tree) != NULL) {
        fj_show((PyObject *)w.structure);
    }
    return w.structure;
}

FjStructure *
fj_flatten_leaves(FjRegistry *registry, PyObject *tree, PyObject *is_leaf, int none_is_leaf,
                  FjLeafBuf *leaves)
{
    Walk w = {.structure = fj_structure_new(registry),
              .arrays = leaves,
              .is_tree_structure = 1,
              .none_is_leaf = none_is_leaf,
              .may_stop = is_leaf != NULL,
              .is_leaf = is_leaf};
    if (w.structure != NULL) {
        w.structure->is_tree_structure = 1;
    }
    return walk_tree(&w, tree);
}

int
fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name, const char *model,
                 FjLeafBuf *leaves)
{
    FjPrefix prefix = {
        .structure = structure, .next = structure->nodes, .name = name, .model = model};
    Walk w = {.structure = fj_structure_new(structure->registry),
              .arrays = leaves,
              .is_tree_structure = 1,
              .may_stop = 1,
              .prefix = &prefix};
    int result = walk_tree(&w, tree) == NULL ? -1 : 0;
    Py_XDECREF(w.structure);
    return result;
}

/* Notes which nodes have a number.  0, or -1 with MemoryError. */
static int
note_identities(FjStructure *structure)
{
    structure->identities = PyMem_New(uint32_t, structure->num_identities);
    if (structure->identities == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0, number = 0; i < structure->count; i++) {
        if (fj_node_has_number(&structure->nodes[i])) {
            structure->identities[number++] = i;
        }
    }
    return 0;
}

/* Walks the argument of a parameter. */
static int
walk_argument(Walk *w, PyObject *argument, int flags)
{
    w->array_flags = flags & FJ_TRACED_ARGUMENT ? FJ_NODE_NUMBERS : 0;
    return argument == NULL             ? add_nothing(w, FJ_MISSING)
           : flags & FJ_STATIC_ARGUMENT ? add_static(w, argument, FJ_NODE_ARGUMENT)
                                        : walk(w, argument);
}

FjStructure *
fj_flatten_arguments(FjRegistry *registry, PyObject *names, const char *flags,
                     PyObject *const *arguments, FjLeafBuf *arrays, FjLeafBuf *objects)
{
    Walk w = {.structure = fj_structure_new(registry), .arrays = arrays, .objects = objects};
    if (w.structure == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    Py_ssize_t root = open_node(&w, FJ_ARGUMENTS, count, NULL, names);
    int result = root < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; i < count && result == 0; i++) {
        result = walk_argument(&w, arguments[i], flags == NULL ? 0 : flags[i]);
    }
    fj_address_map_clear(&w.numbers);
    if (result == 0) {
        fj_structure_close(w.structure, root);
        result = w.structure->num_identities > 0 ? note_identities(w.structure) : 0;
    }
    if (result < 0) {
        Py_DECREF(w.structure);
        return NULL;
    }
    fj_show((PyObject *)w.structure);
    return w.structure;
}
