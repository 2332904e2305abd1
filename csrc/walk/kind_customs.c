/* Reads and builds objects by the functions registered for their type, which flatten one level
 * and build an object (kinds.h).
 *
 * Python code can run in both functions, in building children, and in finalizers. */
#include "walk/kinds.h"

#include "structure/statics.h"

/* True if `keys` are `count` keys in the form that fj_children_key returns. */
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

/* For a comparison, which needs no keys. */
static int
read_to_compare(FjContents *c, PyObject *object)
{
    PyObject *children, *aux_data;
    PyObject *parts = fj_registry_flatten(c->registry, object, &children, &aux_data);
    if (parts == NULL) {
        return -1;
    }
    c->aux_data = Py_NewRef(aux_data);
    int result = fj_contents_of_tuple(c, fj_tuple_of(children));
    Py_DECREF(parts);
    return result;
}

/* Reads what flatten_with_keys() returned. */
static int
read_parts(FjContents *c, PyObject *object, const FjNodeKind *kind, PyObject *parts)
{
    PyObject *children, *aux_data, *unflatten, *keys;
    if (!fj_expect_tuple(parts, "flatten_with_keys") ||
        !PyArg_ParseTuple(
            parts, "O!OOO!;flatten_with_keys() must return (children, aux, unflatten, keys)",
            &PyTuple_Type, &children, &aux_data, &unflatten, &PyTuple_Type, &keys)) {
        return -1;
    }
    if (!are_keys(keys, PyTuple_GET_SIZE(children))) {
        return fj_raise(PyExc_ValueError,
                        "flatten_with_keys() must return a key for each child");
    }
    c->aux = PyTuple_Pack(3, aux_data, unflatten, keys);
    FjStaticRule rule = fj_static_rule(c->registry, aux_data);
    int is_fixed = c->aux == NULL ? -1 : fj_static_is_fixed(c->registry, aux_data, rule);
    if (is_fixed < 0) {
        return -1;
    }
    int is_its_aux = kind->is_its_aux && aux_data == object && PyTuple_GET_SIZE(children) == 0;
    c->flags = (is_fixed ? FJ_NODE_FIXED : 0) | (is_its_aux ? FJ_NODE_IS_ITS_AUX : 0);
    c->runs_python = !is_its_aux;
    return fj_contents_of_tuple(c, Py_NewRef(children));
}

static int
read_custom(FjContents *c, PyObject *object, FjNodeKind *kind)
{
    c->code = FJ_CUSTOM;
    c->type = Py_TYPE(object);
    if (!c->is_new) {
        return read_to_compare(c, object);
    }
    PyObject *parts = PyObject_CallOneArg(c->registry->types->flatten_with_keys, object);
    if (parts == NULL) {
        c->failed_to = "flatten";
        return -1;
    }
    int result = read_parts(c, object, kind, parts);
    Py_DECREF(parts);
    return result;
}

static PyObject *
build_custom(FjBuilder *b, const FjNode *node)
{
    if (node->flags & FJ_NODE_IS_ITS_AUX) {
        return Py_NewRef(fj_structure_value(node));
    }
    PyObject *values = fj_build_items(b, node, PyTuple_New(node->arity));
    if (values == NULL) {
        return NULL;
    }
    PyObject *arguments[] = {PyTuple_GET_ITEM(node->aux, 0), values};
    PyObject *result = PyObject_Vectorcall(PyTuple_GET_ITEM(node->aux, 1), arguments, 2, NULL);
    Py_DECREF(values);
    return result;
}

const FjReader fj_custom_reader = {read_custom, build_custom};
