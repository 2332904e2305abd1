/* Reads objects by the functions registered for their type, which flatten one level and build
 * an object (reader.h).
 *
 * Python code can run in both functions, in walking and building children, in finalizers. */
#include "walk/reader.h"

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

/* flatten_custom for a comparison, which needs no keys. */
static int
compare_custom(FjFlattener *f, PyObject *object)
{
    PyObject *children, *aux;
    PyObject *parts = fj_registry_flatten(fj_flatten_registry(f), object, &children, &aux);
    PyObject *items = parts == NULL ? NULL : fj_tuple_of(children);
    Py_ssize_t size = items == NULL ? 0 : PyTuple_GET_SIZE(items);
    int result =
        items == NULL ? -1 : fj_expected_open_custom(f->expected, size, Py_TYPE(object), aux);
    if (result == 0) {
        result = fj_flatten_items(f, items, size);
    }
    Py_XDECREF(items);
    Py_XDECREF(parts);
    return result;
}

static int
flatten_custom(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    if (f->expected != NULL) {
        return compare_custom(f, object);
    }
    int result = -1;
    PyObject *children = NULL, *aux = NULL, *unflatten = NULL, *keys = NULL, *details = NULL;
    PyObject *parts =
        PyObject_CallOneArg(fj_flatten_registry(f)->types->flatten_with_keys, object);
    if (parts == NULL) {
        fj_flatten_add_context(f, object, "flatten");
        return -1;
    }
    if (!fj_expect_tuple(parts, "flatten_with_keys") ||
        !PyArg_ParseTuple(
            parts, "O!OOO!;flatten_with_keys() must return (children, aux, unflatten, keys)",
            &PyTuple_Type, &children, &aux, &unflatten, &PyTuple_Type, &keys)) {
        goto done;
    }
    if (!are_keys(keys, PyTuple_GET_SIZE(children))) {
        PyErr_SetString(PyExc_ValueError,
                        "flatten_with_keys() must return a key for each child");
        goto done;
    }
    details = PyTuple_Pack(3, aux, unflatten, keys);
    if (details == NULL) {
        goto done;
    }
    int immutable = fj_static_is_immutable(fj_flatten_registry(f), aux);
    if (immutable < 0) {
        goto done;
    }
    int is_itself = kind->is_itself && aux == object && PyTuple_GET_SIZE(children) == 0;
    int flags = (immutable ? FJ_NODE_SELF_EQUAL : 0) | (is_itself ? FJ_NODE_ITSELF : 0);
    Py_ssize_t index = fj_flatten_open(f, FJ_CUSTOM, PyTuple_GET_SIZE(children),
                                       Py_TYPE(object), details, flags);
    if (index < 0) {
        goto done;
    }
    fj_flatten_runs_python(f, !is_itself);
    result = fj_flatten_items(f, children, PyTuple_GET_SIZE(children));
    if (result == 0) {
        fj_flatten_close(f, index);
    }
done:
    Py_XDECREF(details);
    Py_DECREF(parts);
    return result;
}

static PyObject *
build_custom(FjBuilder *b, const FjNode *node)
{
    if (node->flags & FJ_NODE_ITSELF) {
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

const FjReader fj_custom_reader = {flatten_custom, build_custom, FJ_COMPARE(NULL)};
