/* Comparing the nodes of a tree with those of a prefix, and saying where they differ.
 *
 * Python code can run in the __eq__ of static fields, aux data and keys, in the repr of those
 * that go into an error message, and in finalizers.
 */
#include "walk/prefix.h"

#include "structure/paths.h"

/* ---- the error ---- */

/* "a `list` of 3", or "a `list`" if `size` is negative; a new reference. */
static PyObject *
describe_type(const char *type, Py_ssize_t size)
{
    return size < 0 ? PyUnicode_FromFormat("a `%s`", type)
                    : PyUnicode_FromFormat("a `%s` of %zd", type, size);
}

static PyObject *
describe_node(const FjPrefix *p, const FjNode *node)
{
    switch (node->code) {
    case FJ_NONE:
        return PyUnicode_FromString("None");
    case FJ_TUPLE:
        return describe_type("tuple", node->arity);
    case FJ_LIST:
        return describe_type("list", node->arity);
    default:
        return describe_type(fj_structure_info(p->structure, node)->type->tp_name, -1);
    }
}

static PyObject *
describe_object(PyObject *object)
{
    return object == Py_None            ? PyUnicode_FromString("None")
           : PyTuple_CheckExact(object) ? describe_type("tuple", PyTuple_GET_SIZE(object))
           : PyList_CheckExact(object)  ? describe_type("list", PyList_GET_SIZE(object))
                                        : describe_type(Py_TYPE(object)->tp_name, -1);
}

/* Raises a ValueError: the tree has `found` at `path`, the Structure `expected`.  Steals all
 * three; one that is NULL is an error that is passed on.  Always -1. */
static int
raise_at(const FjPrefix *p, PyObject *path, PyObject *found, PyObject *expected)
{
    PyObject *where = NULL;
    if (path != NULL && found != NULL && expected != NULL) {
        where = fj_path_text(Py_NewRef(path));
    }
    if (where != NULL) {
        PyErr_Format(PyExc_ValueError, "%s differs from %s at %U: it has %U, where %s has %U",
                     p->name, p->model, where, found, p->model, expected);
    }
    Py_XDECREF(path);
    Py_XDECREF(found);
    Py_XDECREF(expected);
    Py_XDECREF(where);
    return -1;
}

static PyObject *
path_of(const FjPrefix *p, const FjNode *node)
{
    return fj_path_of_node(p->structure, (uint32_t)(node - p->structure->nodes));
}

/* raise_at for the place of a node.  The texts are made by Python code, so the second is NULL
 * if the first has raised. */
static int
raise_difference(const FjPrefix *p, const FjNode *node, PyObject *found, PyObject *expected)
{
    PyObject *path = found == NULL || expected == NULL ? NULL : path_of(p, node);
    return raise_at(p, path, found, expected);
}

static int
raise_type_differs(const FjPrefix *p, const FjNode *node, PyObject *object)
{
    return raise_difference(p, node, describe_object(object), describe_node(p, node));
}

/* raise_at for a field, whose name goes into both texts: `found` and `expected` are values, or
 * NULL if the field is not set. */
static int
raise_field_differs(const FjPrefix *p, const FjNode *field, PyObject *found,
                    PyObject *expected)
{
    PyObject *path = path_of(p, field), *key = NULL, *texts[2] = {NULL, NULL};
    Py_ssize_t last = path == NULL ? -1 : PyList_GET_SIZE(path) - 1;
    if (last >= 0) {
        key = Py_NewRef(PyList_GET_ITEM(path, last));
        if (PyTuple_Check(key)) {
            Py_SETREF(key, Py_NewRef(PyTuple_GET_ITEM(key, 0)));
        }
        if (PyList_SetSlice(path, last, last + 1, NULL) < 0) {
            Py_CLEAR(key);
        }
    }
    if (key != NULL && found != NULL && expected != NULL) {
        texts[0] = PyUnicode_FromFormat("%S=%R", key, found);
        texts[1] = texts[0] == NULL ? NULL : PyUnicode_FromFormat("%S=%R", key, expected);
    }
    else if (key != NULL) {
        texts[0] = PyUnicode_FromFormat("%s `%S`", found == NULL ? "no" : "a", key);
        texts[1] =
            texts[0] == NULL ? NULL : PyUnicode_FromString(found == NULL ? "one" : "none");
    }
    Py_XDECREF(key);
    return raise_at(p, path, texts[0], texts[1]);
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
        return raise_field_differs(p, node, object, NULL);
    }
    PyTypeObject *type = node->code == FJ_NONE    ? Py_TYPE(Py_None)
                         : node->code == FJ_TUPLE ? &PyTuple_Type
                         : node->code == FJ_LIST ? &PyList_Type
                                                 : fj_structure_info(p->structure, node)->type;
    return Py_TYPE(object) == type ? 0 : raise_type_differs(p, node, object);
}

/* A text with the keys of a dict, which are written as a list. */
static PyObject *
describe_keys(const char *format, PyObject *keys)
{
    PyObject *list = PySequence_List(keys);
    PyObject *text = list == NULL ? NULL : PyUnicode_FromFormat(format, list);
    Py_XDECREF(list);
    return text;
}

static int
raise_keys_differ(const FjPrefix *p, const FjNode *node, PyObject *keys)
{
    PyObject *found = describe_keys("the keys %R", keys);
    return raise_difference(p, node, found,
                            found == NULL ? NULL : describe_keys("%R", node->aux));
}

int
fj_prefix_open(FjPrefix *p, FjKindCode code, Py_ssize_t arity, PyTypeObject *type,
               PyObject *aux)
{
    const FjNode *node = p->next++;
    switch (node->code == code ? code : FJ_KIND_COUNT) {
    case FJ_TUPLE:
    case FJ_LIST:
        return node->arity == arity
                   ? 0
                   : raise_difference(p, node,
                                      describe_type(code == FJ_LIST ? "list" : "tuple", arity),
                                      describe_node(p, node));
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT: {
        int same = equal(aux, node->aux);
        return same > 0 ? 0 : same == 0 ? raise_keys_differ(p, node, aux) : -1;
    }
    default:
        if (node->code == code && node->aux == aux && node->arity == arity) {
            return 0;
        }
        return raise_difference(
            p, node, PyUnicode_FromFormat("a `%s` of other attributes", type->tp_name),
            describe_type(type->tp_name, -1));
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
        PyObject *found = PyUnicode_FromFormat("aux data %R", aux_data);
        return raise_difference(p, node, found,
                                found == NULL ? NULL : PyUnicode_FromFormat("%R", expected));
    }
    return node->arity == arity
               ? 0
               : raise_difference(p, node, PyUnicode_FromFormat("%zd children", arity),
                                  PyUnicode_FromFormat("%u", (unsigned)node->arity));
}

int
fj_prefix_pass_static(FjPrefix *p, PyObject *value)
{
    const FjNode *node = p->next++;
    if (node->code != FJ_STATIC) {
        return raise_field_differs(p, node, value, NULL);
    }
    int same = equal(node->aux, value);
    return same > 0 ? 0 : same == 0 ? raise_field_differs(p, node, value, node->aux) : -1;
}

int
fj_prefix_pass_nothing(FjPrefix *p, FjKindCode code)
{
    const FjNode *node = p->next++;
    return node->code == code ? 0 : raise_field_differs(p, node, NULL, Py_None);
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
        raise_keys_differ(p, node, dict);
    }
    return same > 0 ? Py_NewRef(node->aux) : NULL;
}
