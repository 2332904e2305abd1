/* The keys of the children of each kind of node.
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
