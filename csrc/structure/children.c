/* The keys of the children of each kind of node.
 *
 * Python code can run in the `_fields` of a named tuple.
 */
#include "structure/children.h"

/* (P) The name of a field of a named tuple; a new reference, or NULL with an error. */
static PyObject *
namedtuple_key(PyTypeObject *type, uint32_t number)
{
    PyObject *fields = PyObject_GetAttrString((PyObject *)type, "_fields");
    PyObject *field = fields == NULL ? NULL : PySequence_GetItem(fields, number);
    PyObject *name = field == NULL ? NULL : PyObject_Str(field);
    Py_XDECREF(fields);
    Py_XDECREF(field);
    return name;
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
    case FJ_MODULE:
    case FJ_OBJECT: {
        const FjNodeKind *kind = fj_node_kind(node);
        PyObject *keys = kind->keys != NULL ? kind->keys : kind->names;
        return Py_NewRef(PyTuple_GET_ITEM(keys, number));
    }
    case FJ_NAMEDTUPLE:
        return namedtuple_key(c->structure->info[c->parent].type, number);
    case FJ_CUSTOM:
        return Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(node->aux, 2), number));
    default:
        return Py_BuildValue("(n)", (Py_ssize_t)number);
    }
}
