/* Comparing the nodes of a tree with those of a prefix.
 *
 * Python code can run in the __eq__ of static fields, aux data and keys, where the text of
 * an error is made (words.c), and in finalizers.
 */
#include "walk/prefix.h"

#include "structure/children.h"
#include "structure/words.h"

/* ---- the error ---- */

/* Raises a ValueError: the tree has `found` in the place of a node, the Structure `expected`.
 * `what` says what they are (`difference` in _base/_words.py).  Steals both; one that is NULL
 * is an error that is passed on.  Always -1. */
static int
raise_difference(const FjPrefix *p, const FjNode *node, const char *what, PyObject *found,
                 PyObject *expected)
{
    PyObject *path =
        found == NULL || expected == NULL
            ? NULL
            : fj_path_of_node(p->structure, (uint32_t)(node - p->structure->nodes));
    PyObject *text = path == NULL
                         ? NULL
                         : fj_words_call(p->structure->registry, "difference", "(sOssOO)",
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

/* raise_difference for a value or a field: the Structure has nothing if `expected` is NULL,
 * and the tree has nothing if `found` is NULL. */
static int
raise_values_differ(const FjPrefix *p, const FjNode *node, const char *what, PyObject *found,
                    PyObject *expected)
{
    return raise_difference(p, node, what, Py_NewRef(found == NULL ? Py_None : found),
                            Py_NewRef(expected == NULL ? Py_None : expected));
}

/* The name of a type, and the size of a tuple or list; a new tuple. */
static PyObject *
type_and_size(const PyTypeObject *type, Py_ssize_t size)
{
    int is_sized = type == &PyTuple_Type || type == &PyList_Type;
    return Py_BuildValue("(sn)", type->tp_name, is_sized ? size : -1);
}

static PyTypeObject *
type_of(const FjPrefix *p, const FjNode *node)
{
    return node->code == FJ_NONE    ? Py_TYPE(Py_None)
           : node->code == FJ_TUPLE ? &PyTuple_Type
           : node->code == FJ_LIST  ? &PyList_Type
                                    : fj_structure_info(p->structure, node)->type;
}

/* `size` is that of the tree's tuple or list. */
static int
raise_types_differ(const FjPrefix *p, const FjNode *node, const PyTypeObject *type,
                   Py_ssize_t size)
{
    return raise_difference(p, node, "type", type_and_size(type, size),
                            type_and_size(type_of(p, node), node->arity));
}

/* ---- the comparison ---- */

/* Whether two objects are identical or equal, as elements of a tuple are compared.  1, 0, or
 * -1 with an error. */
static int
equal(PyObject *a, PyObject *b)
{
    return PyObject_RichCompareBool(a, b, Py_EQ);
}

int
fj_prefix_meet(FjPrefix *p, PyObject *object)
{
    const FjNode *node = p->next;
    if (node->code == FJ_ARRAY) {
        p->next++;
        return 1;
    }
    if (node->code == FJ_MISSING) {
        return raise_values_differ(p, node, "more", object, NULL);
    }
    PyTypeObject *type = Py_TYPE(object);
    Py_ssize_t size = PyTuple_CheckExact(object)  ? PyTuple_GET_SIZE(object)
                      : PyList_CheckExact(object) ? PyList_GET_SIZE(object)
                                                  : -1;
    return type == type_of(p, node) ? 0 : raise_types_differ(p, node, type, size);
}

int
fj_prefix_open(FjPrefix *p, FjKindCode code, Py_ssize_t arity, PyTypeObject *type,
               PyObject *aux)
{
    const FjNode *node = p->next++;
    switch (node->code == code ? code : FJ_KIND_COUNT) {
    case FJ_TUPLE:
    case FJ_LIST:
        return node->arity == arity ? 0 : raise_types_differ(p, node, type_of(p, node), arity);
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT: {
        int same = equal(aux, node->aux);
        return same > 0    ? 0
               : same == 0 ? raise_values_differ(p, node, "keys", aux, node->aux)
                           : -1;
    }
    default:
        if (node->code == code && node->aux == aux && node->arity == arity) {
            return 0;
        }
        return raise_difference(p, node, "attributes", type_and_size(type, -1),
                                Py_NewRef(Py_None));
    }
}

int
fj_prefix_open_custom(FjPrefix *p, Py_ssize_t arity, PyObject *aux_data)
{
    const FjNode *node = p->next;
    if (node->code != FJ_CUSTOM) {
        return fj_prefix_open(p, FJ_CUSTOM, arity, fj_structure_info(p->structure, node)->type,
                              NULL);
    }
    PyObject *expected = fj_structure_value(node);
    p->next++;
    int same = equal(expected, aux_data);
    if (same < 0) {
        return -1;
    }
    if (!same) {
        return raise_values_differ(p, node, "aux data", aux_data, expected);
    }
    return node->arity == arity
               ? 0
               : raise_difference(p, node, "children", PyLong_FromSsize_t(arity),
                                  PyLong_FromUnsignedLong(node->arity));
}

int
fj_prefix_pass_static(FjPrefix *p, PyObject *value)
{
    const FjNode *node = p->next++;
    if (node->code != FJ_STATIC) {
        return raise_values_differ(p, node, "more", value, NULL);
    }
    int same = equal(node->aux, value);
    return same > 0    ? 0
           : same == 0 ? raise_values_differ(p, node, "value", value, node->aux)
                       : -1;
}

int
fj_prefix_pass_nothing(FjPrefix *p, FjKindCode code)
{
    const FjNode *node = p->next++;
    return node->code == code ? 0 : raise_values_differ(p, node, "less", NULL, NULL);
}

PyObject *
fj_prefix_keys(FjPrefix *p, PyObject *dict)
{
    const FjNode *node = p->next;
    if (node->code != FJ_DICT && node->code != FJ_DEFAULT_DICT) {
        return fj_tuple_of(dict); /* in its own order */
    }
    int same = PyDict_GET_SIZE(dict) == PyTuple_GET_SIZE(node->aux);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node->aux) && same > 0; i++) {
        same = PyDict_Contains(dict, PyTuple_GET_ITEM(node->aux, i));
    }
    if (same == 0) {
        raise_values_differ(p, node, "keys", dict, node->aux);
    }
    return same > 0 ? Py_NewRef(node->aux) : NULL;
}
