/* Reads tuples, lists and named tuples (reader.h).
 *
 * Python code can run wherever a child is walked or built, in a named tuple's class with its
 * own __new__, and when a reference is dropped. */
#include "walk/reader.h"

#include "base/scratch.h"

/* True if the tuple of a just closed node can never change: Constant tuples in structure.h. */
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

/* Pushes all `items` if a prefix has leaves for them, or if all their types are known to be
 * leaves.  They then need no nodes.  Runs no Python code.  1, 0, or -1 with an error. */
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
                /* The tree holds the items too, so dropping them here runs no Python code. */
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

/* Sets FJ_NODE_LEAVES and removes the child nodes of a tuple or list if all children are
 * leaves.  They have nodes after all if add_leaves met an unknown type, or with an `is_leaf`,
 * but equal trees must have equal Structures. */
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

int
fj_flatten_items(FjFlattener *f, PyObject *items, Py_ssize_t size)
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
            return fj_flatten_changed(f, items);
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

/* Without a GIL, copies a list to a tuple first, because other threads can change it. */
static int
flatten_sequence(FjFlattener *f, PyObject *sequence, FjNodeKind *kind)
{
    if (FJ_UNLIKELY(f->expected != NULL) && fj_expected_skip(f->expected, sequence)) {
        return 0;
    }
    FjKindCode code = kind->code;
    int is_named = code == FJ_NAMEDTUPLE;
    PyObject *items = sequence, *copy = NULL;
    if (FJ_FREE_THREADED && code == FJ_LIST) {
        items = copy = PyList_AsTuple(sequence);
        if (copy == NULL) {
            return -1;
        }
    }
    Py_ssize_t size = Py_SIZE(items);
    Py_ssize_t index = fj_flatten_open(f, code, size, is_named ? kind->type : NULL,
                                       is_named ? (PyObject *)kind : NULL, 0);
    int may_be_leaves = f->is_tree_structure && !is_named;
    int result = index < 0 ? -1 : 0;
    if (result == 0 && may_be_leaves) {
        result = add_leaves(f, PySequence_Fast_ITEMS(items), size);
    }
    int are_leaves = result > 0;
    if (result == 0) {
        result = fj_flatten_items(f, items, size);
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

/* Builds the children of a node into a new tuple or list.
 *
 * Most containers hold only leaves, and no other code runs while they are filled.  The others
 * are hidden meanwhile. */
static int
fill_items(FjBuilder *b, const FjNode *node, PyObject *container, PyObject **items)
{
    uint32_t i = 0;
    if (node->flags & FJ_NODE_LEAVES) {
        for (; i < node->arity; i++) {
            items[i] = Py_NewRef(b->arrays[i]);
        }
        b->arrays += i;
        return 0;
    }
    for (; i < node->arity; i++) {
        const FjNode *child = b->next;
        if (FJ_LIKELY(child->code == FJ_ARRAY)) {
            items[i] = Py_NewRef(*b->arrays++);
        }
        else if (child->code == FJ_STATIC) {
            items[i] = Py_NewRef(child->aux);
        }
        else {
            break;
        }
        b->next++;
    }
    if (i == node->arity) {
        return 0;
    }
    fj_hide(container);
    for (; i < node->arity; i++) {
        items[i] = fj_build_node(b);
        if (items[i] == NULL) {
            return -1;
        }
    }
    fj_show(container);
    return 0;
}

PyObject *
fj_build_items(FjBuilder *b, const FjNode *node, PyObject *container)
{
    if (container != NULL &&
        fill_items(b, node, container, PySequence_Fast_ITEMS(container)) < 0) {
        Py_CLEAR(container);
    }
    return container;
}

static PyObject *
build_tuple(FjBuilder *b, const FjNode *node)
{
    if (node->aux != NULL) { /* a constant tuple, shared by all trees */
        b->next = fj_structure_skip(b->structure, node);
        return Py_NewRef(node->aux);
    }
    return fj_build_items(b, node, PyTuple_New(node->arity));
}

static PyObject *
build_list(FjBuilder *b, const FjNode *node)
{
    return fj_build_items(b, node, PyList_New(node->arity));
}

static PyObject *
make_namedtuple(FjBuilder *b, const FjNode *node, PyObject **items)
{
    PyTypeObject *type = fj_structure_info(b->structure, node)->type;
    PyObject *result;
    if (!fj_node_kind(node)->fill_directly) {
        result = PyObject_Vectorcall((PyObject *)type, items, node->arity, NULL);
        fj_drop_children(items, node->arity);
    }
    else if ((result = fj_compat_tuple_alloc(type, node->arity)) == NULL) {
        fj_drop_children(items, node->arity);
    }
    else {
        memcpy(((PyTupleObject *)result)->ob_item, items, node->arity * sizeof(PyObject *));
    }
    return result;
}

static PyObject *
build_namedtuple(FjBuilder *b, const FjNode *node)
{
    return fj_build_of_children(b, node, 0, node->arity, make_namedtuple);
}

#if FJ_FREE_THREADED

static int
compare_list(FjFlattener *f, const FjNode *node, PyObject *list)
{
    return fj_compare_children(f, node, list, NULL, 0);
}

/* The caller holds the tuple, which holds its items. */
static int
compare_tuple(FjFlattener *f, const FjNode *node, PyObject *tuple)
{
    Py_ssize_t count = node->arity;
    if (node->code == FJ_TUPLE && fj_expected_skip(f->expected, tuple)) {
        return 1;
    }
    if (PyTuple_GET_SIZE(tuple) != count) {
        return 0;
    }
    f->expected->next = node + 1;
    int result = 0;
    for (Py_ssize_t i = 0; i < count && result == 0; i++) {
        result = fj_compare_child(f, PyTuple_GET_ITEM(tuple, i));
    }
    return result < 0 ? -1 : 1;
}

#endif

const FjReader fj_tuple_reader = {flatten_sequence, build_tuple, FJ_COMPARE(compare_tuple)};
const FjReader fj_list_reader = {flatten_sequence, build_list, FJ_COMPARE(compare_list)};
const FjReader fj_namedtuple_reader = {flatten_sequence, build_namedtuple,
                                       FJ_COMPARE(compare_tuple)};
