/* Compares a tree with the Structure of a prefix, like jax.tree_util.  Types must be
 * identical; static fields, aux data and keys must be ==.  A dict's keys can be in any order,
 * an OrderedDict's can't.  A difference raises a ValueError with its path.
 *
 * Python code can run in reading containers (kinds.h), in `classify`, in the __eq__ and
 * __hash__ of statics and keys, and in formatting an error (messages.c). */
#include "walk/prefix.h"

#include "structure/messages.h"
#include "walk/kinds.h"

typedef struct {
    const FjStructure *structure;
    const FjNode *next;
    FjLeafBuf *leaves;
    FjScratch *scratch;
    const char *name;  /* of the tree, in errors */
    const char *model; /* of the Structure */
} Prefix;

/* ---- differences ---- */

/* Raises a ValueError: the tree has `found` at a node, the Structure `expected`.  `what` names
 * the difference (`difference` in _base/_messages.py).  Steals both (NULL: an error). */
static int
raise_difference(const Prefix *p, const FjNode *node, const char *what, PyObject *found,
                 PyObject *expected)
{
    PyObject *path =
        found == NULL || expected == NULL
            ? NULL
            : fj_path_of_node(p->structure, (uint32_t)(node - p->structure->nodes));
    PyObject *text = path == NULL
                         ? NULL
                         : fj_messages_call(p->structure->registry, "difference", "(sOssOO)",
                                            what, path, p->name, p->model, found, expected);
    if (text != NULL) {
        PyErr_SetObject(PyExc_ValueError, text);
    }
    Py_XDECREF(path);
    Py_XDECREF(text);
    Py_XDECREF(found);
    Py_XDECREF(expected);
    return -1;
}

/* NULL stands for an absent part.  Always -1. */
static int
differ(const Prefix *p, const FjNode *node, const char *what, PyObject *found,
       PyObject *expected)
{
    return raise_difference(p, node, what, Py_NewRef(found == NULL ? Py_None : found),
                            Py_NewRef(expected == NULL ? Py_None : expected));
}

/* Returns the type of the node's object, or NULL for a leaf or an absent node. */
static const PyTypeObject *
type_of(const Prefix *p, const FjNode *node)
{
    return node->code == FJ_NONE ? Py_TYPE(Py_None) : fj_structure_type(p->structure, node);
}

/* Returns a new tuple.  The size is -1 for other types than tuple and list. */
static PyObject *
type_and_size(const PyTypeObject *type, Py_ssize_t size)
{
    int is_sized = type == &PyTuple_Type || type == &PyList_Type;
    return Py_BuildValue("(sn)", type->tp_name, is_sized ? size : -1);
}

/* `size` is the size of a tuple or list in the tree. */
static int
differ_in_type(const Prefix *p, const FjNode *node, const PyTypeObject *type, Py_ssize_t size)
{
    return raise_difference(p, node, "type", type_and_size(type, size),
                            type_and_size(type_of(p, node), node->arity));
}

/* ---- the walk ---- */

static int walk(Prefix *p, PyObject *object);

/* True if a dict has the node's keys, by ==. 1, 0, or -1 with an error. */
static int
has_keys(const FjNode *node, PyObject *dict)
{
    int same = PyDict_GET_SIZE(dict) == PyTuple_GET_SIZE(node->aux);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node->aux) && same > 0; i++) {
        same = PyDict_Contains(dict, PyTuple_GET_ITEM(node->aux, i));
    }
    return same;
}

static int
check_value(const Prefix *p, const FjNode *node, PyObject *value, const char *what)
{
    PyObject *expected = fj_structure_value(node);
    int same = PyObject_RichCompareBool(expected, value, Py_EQ);
    return same > 0 ? 0 : same < 0 ? -1 : differ(p, node, what, value, expected);
}

/* Compares a container without its children. */
static int
check_contents(const Prefix *p, const FjNode *node, const FjContents *c)
{
    if (c->code == node->code && c->keys == NULL && fj_structure_value(node) != NULL) {
        PyObject *value = c->code == FJ_CUSTOM ? c->aux_data : c->aux;
        const char *what = c->code == FJ_ORDERED_DICT ? "keys" : "aux data";
        if (check_value(p, node, value, what) < 0) {
            return -1;
        }
        return c->children.count == (Py_ssize_t)node->arity
                   ? 0
                   : raise_difference(p, node, "children",
                                      PyLong_FromSsize_t(c->children.count),
                                      PyLong_FromUnsignedLong(node->arity));
    }
    int is_sequence = c->code == FJ_TUPLE || c->code == FJ_LIST;
    if (c->code == node->code && c->children.count == (Py_ssize_t)node->arity &&
        (!fj_node_has_kind(node) || c->aux == node->aux) &&
        !((c->flags ^ node->flags) & FJ_NODE_WRAPPER)) {
        return 0;
    }
    return is_sequence ? differ_in_type(p, node, type_of(p, node), c->children.count)
                       : raise_difference(p, node, "attributes", type_and_size(c->type, -1),
                                          Py_NewRef(Py_None));
}

static int walk_contents(Prefix *p, const FjNode *node, PyObject *object, FjContents *c,
                         int result);

/* With `is_static`, the values are static fields. */
static int
walk_dict(Prefix *p, FjKindCode code, PyObject *dict, int is_static)
{
    const FjNode *node = p->next++;
    FjContents c = {.registry = p->structure->registry, .scratch = p->scratch};
    if (code != FJ_ORDERED_DICT) {
        int same = has_keys(node, dict);
        if (same <= 0) {
            return same < 0 ? -1 : differ(p, node, "keys", dict, node->aux);
        }
        c.keys = node->aux;
    }
    return walk_contents(p, node, dict, &c, fj_contents_read_dict(&c, code, dict, is_static));
}

static int
walk_child(Prefix *p, const FjContents *c, Py_ssize_t i)
{
    const FjNode *node = p->next;
    PyObject *child = c->children.items[i];
    int is_tree = fj_contents_is_tree(&c->children, i);
    if (child != NULL && fj_contents_is_dict(&c->children, i)) {
        return walk_dict(p, FJ_DICT, child, !is_tree);
    }
    if (child != NULL && is_tree) {
        return walk(p, child);
    }
    p->next++;
    if (child == NULL) {
        return node->code == FJ_MISSING ? 0 : differ(p, node, "less", NULL, NULL);
    }
    return node->code == FJ_STATIC ? check_value(p, node, child, "value")
                                   : differ(p, node, "more", child, NULL);
}

/* `result` is from reading the contents, which this clears. */
static int
walk_contents(Prefix *p, const FjNode *node, PyObject *object, FjContents *c, int result)
{
    if (result > 0) {
        result = check_contents(p, node, c);
    }
    else if (result == 0) {
        result = fj_contents_changed(object);
    }
    for (Py_ssize_t i = 0; i < c->children.count && result == 0; i++) {
        result = walk_child(p, c, i);
    }
    fj_contents_clear(c);
    return result;
}

static int
walk_container(Prefix *p, PyObject *object)
{
    const FjNode *node = p->next;
    FjNodeKind *kind = fj_registry_kind(p->structure->registry, object);
    if (kind == NULL) {
        return -1;
    }
    int result;
    if (kind->code == FJ_DICT || kind->code == FJ_ORDERED_DICT ||
        kind->code == FJ_DEFAULT_DICT) {
        result = walk_dict(p, kind->code, object, 0);
    }
    else {
        FjContents c = {.registry = p->structure->registry, .scratch = p->scratch};
        p->next++;
        result = walk_contents(p, node, object, &c, fj_contents_read(&c, object, kind));
    }
    Py_DECREF(kind);
    return result;
}

static int
walk(Prefix *p, PyObject *object)
{
    const FjNode *node = p->next;
    if (node->code == FJ_ARRAY) {
        p->next++;
        return fj_leafbuf_push(p->leaves, object);
    }
    if (node->code == FJ_STATIC) { /* a static leaf */
        p->next++;
        return 0;
    }
    if (node->code == FJ_MISSING) {
        return differ(p, node, "more", object, NULL);
    }
    if (Py_TYPE(object) != type_of(p, node)) {
        int is_sequence = PyTuple_CheckExact(object) || PyList_CheckExact(object);
        return differ_in_type(p, node, Py_TYPE(object), is_sequence ? Py_SIZE(object) : -1);
    }
    if (node->code == FJ_NONE) {
        p->next++;
        return 0;
    }
    if (Py_EnterRecursiveCall(" while flattening a pytree: it is too deep, or a cycle")) {
        return -1;
    }
    int result = walk_container(p, object);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name, const char *model,
                 FjLeafBuf *leaves)
{
    PyObject *stack[FJ_SCRATCH_INLINE];
    FjScratch scratch = fj_scratch_of(stack);
    Prefix p = {.structure = structure,
                .next = structure->nodes,
                .leaves = leaves,
                .scratch = &scratch,
                .name = name,
                .model = model};
    return walk(&p, tree);
}
