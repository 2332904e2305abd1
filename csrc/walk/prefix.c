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

/* Raises a ValueError: `found`, in the tree, differs from a node.  `what` names the
 * difference, and `count` is the size of a tuple or list, or the number of children
 * (`difference` in _base/_messages.py).  Always -1. */
static int
differ(const Prefix *p, const FjNode *node, const char *what, PyObject *found,
       Py_ssize_t count)
{
    return fj_messages_raise(fj_messages_call(
        p->structure->registry, "difference", "(sOnssOn)", what, p->structure,
        (Py_ssize_t)(node - p->structure->nodes), p->name, p->model, found, count));
}

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
    int same = PyObject_RichCompareBool(fj_structure_value(node), value, Py_EQ);
    return same > 0 ? 0 : same < 0 ? -1 : differ(p, node, what, value, -1);
}

/* Compares a container without its children. */
static int
check_contents(const Prefix *p, const FjNode *node, PyObject *object, const FjContents *c)
{
    Py_ssize_t count = c->children.count;
    int has_count = count == (Py_ssize_t)node->arity;
    if (c->code == node->code && c->keys == NULL && fj_structure_value(node) != NULL) {
        PyObject *value = c->code == FJ_CUSTOM ? c->aux_data : c->aux;
        const char *what = c->code == FJ_ORDERED_DICT ? "keys" : "aux data";
        if (check_value(p, node, value, what) < 0) {
            return -1;
        }
        return has_count ? 0 : differ(p, node, "children", object, count);
    }
    if (c->code == node->code && has_count &&
        (!fj_node_has_kind(node) || c->aux == node->aux) &&
        !((c->flags ^ node->flags) & FJ_NODE_WRAPPER)) {
        return 0;
    }
    int is_sequence = c->code == FJ_TUPLE || c->code == FJ_LIST;
    return differ(p, node, is_sequence ? "type" : "attributes", object, count);
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
            return same < 0 ? -1 : differ(p, node, "keys", dict, -1);
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
        return node->code == FJ_MISSING ? 0 : differ(p, node, "less", Py_None, -1);
    }
    return node->code == FJ_STATIC ? check_value(p, node, child, "value")
                                   : differ(p, node, "more", child, -1);
}

/* `result` is from reading the contents, which this clears. */
static int
walk_contents(Prefix *p, const FjNode *node, PyObject *object, FjContents *c, int result)
{
    if (result > 0) {
        result = check_contents(p, node, object, c);
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
        return differ(p, node, "more", object, -1);
    }
    if (node->code == FJ_NONE && object == Py_None) {
        p->next++;
        return 0;
    }
    if (Py_TYPE(object) != fj_structure_type(p->structure, node)) {
        int is_sequence = PyTuple_CheckExact(object) || PyList_CheckExact(object);
        return differ(p, node, "type", object, is_sequence ? Py_SIZE(object) : -1);
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
