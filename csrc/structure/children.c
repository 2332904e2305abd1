/* The keys of the children of each kind of node, and paths, which are lists of keys.
 *
 * Nothing in this file runs Python code.
 */
#include "structure/children.h"

/* The key that the kind of a node has for a child, borrowed; NULL if it has none. */
static PyObject *
key_of_kind(const FjNode *node, uint32_t number)
{
    const FjNodeKind *kind = fj_node_kind(node);
    PyObject *keys = kind->keys != NULL ? kind->keys : kind->names;
    return keys != NULL && number < (size_t)PyTuple_GET_SIZE(keys)
               ? PyTuple_GET_ITEM(keys, number)
               : NULL;
}

PyObject *
fj_children_key(const FjChildren *c)
{
    const FjNode *node = &c->structure->nodes[c->parent];
    PyObject *key = NULL;
    Py_ssize_t at;
    switch (fj_code_info[node->code].keys) {
    case FJ_KEYS_AUX_ITEMS:
        at = (Py_ssize_t)c->number - (node->arity - PyTuple_GET_SIZE(node->aux));
        return at < 0 ? PyUnicode_FromString("default_factory")
                      : PyTuple_Pack(1, PyTuple_GET_ITEM(node->aux, at));
    case FJ_KEYS_AUX:
        key = PyTuple_GET_ITEM(node->aux, c->number);
        break;
    case FJ_KEYS_LAST_OF_AUX:
        key = PyTuple_GET_ITEM(PyTuple_GET_ITEM(node->aux, 2), c->number);
        break;
    case FJ_KEYS_OF_KIND:
        key = key_of_kind(node, c->number);
        break;
    default:
        break;
    }
    return key != NULL ? Py_NewRef(key) : Py_BuildValue("(n)", (Py_ssize_t)c->number);
}

/* Appends `key`, which is stolen, to the list `*path`, unless it is None.  With an error,
 * `*path` is set to NULL; `key` may be NULL with an error. */
static void
extend_path(PyObject **path, PyObject *key)
{
    if (key == Py_None) {
        Py_DECREF(key);
    }
    else if (fj_list_take(*path, key) < 0) {
        Py_CLEAR(*path);
    }
}

PyObject *
fj_path_of_node(const FjStructure *self, uint32_t target)
{
    PyObject *path = PyList_New(0);
    for (uint32_t at = 0; path != NULL && at != target;) {
        FjChildren c = fj_children_of(self, at);
        /* A child that is not closed has subtree_end 0; the target is below it. */
        while (self->info[c.at].subtree_end != 0 && self->info[c.at].subtree_end <= target) {
            fj_children_next(&c);
        }
        extend_path(&path, fj_children_key(&c));
        at = c.at;
    }
    return path;
}

PyObject *
fj_path_of_leaf(const FjStructure *self, Py_ssize_t leaf)
{
    uint32_t i = 0;
    for (; i < self->count; i++) {
        Py_ssize_t here = fj_node_leaves(&self->nodes[i]);
        if (leaf < here) {
            break;
        }
        leaf -= here;
    }
    PyObject *path = fj_path_of_node(self, i);
    if (path != NULL && self->nodes[i].code != FJ_ARRAY) {
        extend_path(&path, Py_BuildValue("(n)", leaf));
    }
    return path;
}
