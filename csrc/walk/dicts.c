/* Reads dicts, OrderedDicts and defaultdicts (reader.h).
 *
 * Python code can run in sorting and comparing keys, in calling OrderedDict and defaultdict,
 * in OrderedDict's __setitem__, in walking and building children, and in finalizers. */
#include "walk/reader.h"

/* Returns the keys for a new node as a new tuple. */
static PyObject *
dict_keys(FjFlattener *f, FjKindCode code, PyObject *dict)
{
    PyObject *keys = fj_sorted_keys(code, dict);
    if (keys == NULL) {
        fj_flatten_add_context(f, dict, "sort");
    }
    return keys;
}

/* With `is_static`, the values are static fields. */
static int
walk_dict_values(FjFlattener *f, PyObject *dict, PyObject *keys, int is_static)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *value = fj_compat_dict_get(dict, PyTuple_GET_ITEM(keys, i));
        if (value == NULL) { /* or, in a comparison, the keys differ */
            return PyErr_Occurred() ? -1 : fj_flatten_changed(f, dict);
        }
        int result = is_static ? fj_flatten_field(f, value) : fj_flatten_object(f, value);
        Py_DECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

int
fj_flatten_dict(FjFlattener *f, FjKindCode code, PyObject *dict, int is_static)
{
    int result = -1;
    PyObject *factory = NULL;
    PyObject *keys = f->expected != NULL ? fj_expected_keys(f->expected, code, dict)
                                         : dict_keys(f, code, dict);
    if (keys == NULL) {
        return -1;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(keys);
    int has_factory = code == FJ_DEFAULT_DICT, plain = FJ_NODE_PLAIN_KEYS;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i);
        plain = PyUnicode_CheckExact(key) || PyLong_CheckExact(key) ? plain : 0;
    }
    Py_ssize_t index =
        fj_flatten_open(f, code, size + has_factory, Py_TYPE(dict), keys, plain);
    if (index < 0) {
        goto done;
    }
    fj_flatten_runs_python(f, !plain || code == FJ_ORDERED_DICT);
    if (has_factory) {
        factory = PyObject_GetAttrString(dict, "default_factory");
        if (factory == NULL || fj_flatten_field(f, factory) < 0) {
            goto done;
        }
    }
    result = walk_dict_values(f, dict, keys, is_static) < 0 ? -1 : fj_flatten_close(f, index);
done:
    Py_XDECREF(factory);
    Py_DECREF(keys);
    return result;
}

static int
flatten_dict(FjFlattener *f, PyObject *dict, FjNodeKind *kind)
{
    return fj_flatten_dict(f, kind->code, dict, 0);
}

/* True if all values are statics: this dict is then equal in all trees. */
static int
has_only_statics(const FjNode *node)
{
    for (uint32_t i = 0; i < node->arity; i++) {
        if (node[i + 1].code != FJ_STATIC) {
            return 0;
        }
    }
    return 1;
}

/* Returns a new dict to fill.  With PLAIN_KEYS, copies FjNodeInfo.model, which hashes no keys.
 * The copy contains all keys and, if `*is_full` becomes 1, their values. */
static PyObject *
new_dict(FjBuilder *b, const FjNode *node, int *is_full)
{
    *is_full = 0;
    if (!(node->flags & FJ_NODE_PLAIN_KEYS)) {
        return PyDict_New();
    }
    FjNodeInfo *info = &b->structure->info[node - b->structure->nodes];
    *is_full = has_only_statics(node);
    PyObject *model = FJ_LOAD_POINTER(info->model);
    if (model == NULL) {
        model = PyDict_New();
        for (uint32_t i = 0; model != NULL && i < node->arity; i++) {
            if (PyDict_SetItem(model, PyTuple_GET_ITEM(node->aux, i),
                               *is_full ? node[i + 1].aux : Py_None) < 0) {
                Py_CLEAR(model);
            }
        }
        model = fj_keep_first((PyObject *)b->structure, &info->model, model);
    }
    return model == NULL ? NULL : PyDict_Copy(model);
}

static PyObject *
build_dict(FjBuilder *b, const FjNode *node)
{
    PyObject *type = (PyObject *)fj_structure_info(b->structure, node)->type, *dict = NULL;
    if (node->code == FJ_DICT) {
        int is_full;
        dict = new_dict(b, node, &is_full);
        if (is_full) {
            b->next = fj_structure_skip(b->structure, node);
            return dict;
        }
    }
    else if (node->code == FJ_ORDERED_DICT) {
        dict = PyObject_CallNoArgs(type);
    }
    else {
        PyObject *factory = fj_build_node(b);
        dict = factory == NULL ? NULL : PyObject_CallOneArg(type, factory);
        Py_XDECREF(factory);
    }
    for (Py_ssize_t i = 0; dict != NULL && i < PyTuple_GET_SIZE(node->aux); i++) {
        PyObject *value = fj_build_node(b);
        PyObject *key = PyTuple_GET_ITEM(node->aux, i);
        /* OrderedDict records the order of its keys in its own __setitem__. */
        if (value == NULL ||
            (node->code == FJ_ORDERED_DICT ? PyObject_SetItem(dict, key, value)
                                           : PyDict_SetItem(dict, key, value)) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

#if FJ_FREE_THREADED

static int
compare_dict(FjFlattener *f, const FjNode *node, PyObject *dict)
{
    return node->flags & FJ_NODE_PLAIN_KEYS
               ? fj_compare_children(f, node, dict, node->aux, node->arity)
               : 0;
}

#endif

const FjReader fj_dict_reader = {flatten_dict, build_dict, FJ_COMPARE(compare_dict)};
const FjReader fj_other_dict_reader = {flatten_dict, build_dict, FJ_COMPARE(NULL)};
