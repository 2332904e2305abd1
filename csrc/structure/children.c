/* The keys of the children of each kind of node, and paths, which are lists of keys.
 *
 * Nothing in this file runs Python code.
 */
#include "structure/children.h"

/* The keys that the kind of a node has for its children, borrowed; NULL if it has none. */
static PyObject *
keys_of(const FjNode *node)
{
    if (!fj_node_has_kind(node)) {
        return NULL;
    }
    const FjNodeKind *kind = fj_node_kind(node);
    return kind->keys != NULL ? kind->keys : kind->names;
}

PyObject *
fj_children_key(const FjChildren *c)
{
    const FjNode *node = &c->structure->nodes[c->parent];
    uint32_t number = c->number;
    switch (node->code) {
    case FJ_DEFAULT_DICT:
        if (number-- == 0) {
            return PyUnicode_FromString("default_factory");
        }
        return PyTuple_Pack(1, PyTuple_GET_ITEM(node->aux, number));
    case FJ_DICT:
    case FJ_ORDERED_DICT:
        return PyTuple_Pack(1, PyTuple_GET_ITEM(node->aux, number));
    case FJ_ARGUMENTS:
        return Py_NewRef(PyTuple_GET_ITEM(node->aux, number));
    case FJ_CUSTOM:
        return Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(node->aux, 2), number));
    default: {
        PyObject *keys = keys_of(node);
        return keys != NULL && number < (size_t)PyTuple_GET_SIZE(keys)
                   ? Py_NewRef(PyTuple_GET_ITEM(keys, number))
                   : Py_BuildValue("(n)", (Py_ssize_t)number);
    }
    }
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
