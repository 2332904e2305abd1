/* Reads and builds dicts, OrderedDicts and defaultdicts (kinds.h).
 *
 * Python code can run in sorting and comparing keys, in calling OrderedDict and defaultdict,
 * in OrderedDict's __setitem__, in building children, and in finalizers. */
#include "walk/kind_dicts.h"

#include "walk/kinds.h"

/* Skipping this many names per key takes as long as looking the keys up. */
#define PASSED (FJ_FREE_THREADED ? 16 : 4)

/* Searches for this very object among names, in a circle from `first` on.  Subtracts the names
 * it passes from `*budget`.  -1 if absent, or if the budget is spent. */
static Py_ssize_t
find_name(const PyObject *key, PyObject *const *names, Py_ssize_t count, Py_ssize_t first,
          Py_ssize_t *budget)
{
    Py_ssize_t i = first < count ? first : 0;
    for (Py_ssize_t tried = 0; tried < count && *budget > 0; tried++, --*budget) {
        if (key == names[i]) {
            return i;
        }
        i = i + 1 < count ? i + 1 : 0;
    }
    return -1;
}

/* Looks the names up. */
static int
look_up(PyObject *dict, PyObject *const *names, Py_ssize_t count, PyObject **values)
{
    if (FJ_FREE_THREADED || !fj_compat_dict_is_unicode(dict)) {
        return FJ_NEEDS_PYTHON; /* a look-up can run an __eq__ */
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i] = PyDict_GetItemWithError(dict, names[i]);
    }
    return 1;
}

/* fj_peek_objects from the entry at `position` on, after the first `next` names. */
static FJ_NOINLINE int
peek_in_other_order(PyObject *dict, PyObject *const *names, Py_ssize_t count,
                    Py_ssize_t passed, PyObject **values, Py_ssize_t position, Py_ssize_t next)
{
    PyObject *key, *value;
    Py_ssize_t budget = passed * count;
    for (Py_ssize_t i = next; i < count; i++) {
        values[i] = NULL;
    }
    while (fj_compat_dict_next(dict, &position, &key, &value)) {
        next = find_name(key, names, count, next, &budget);
        if (next < 0) {
            return 0;
        }
        values[next++] = value;
    }
    return 1;
}

int
fj_peek_objects(PyObject *dict, PyObject *names, Py_ssize_t count, Py_ssize_t passed,
                PyObject **values)
{
    PyObject *const *items = ((PyTupleObject *)names)->ob_item;
    return peek_in_other_order(dict, items, count, passed, values, 0, 0);
}

/* Nearly always, the dict's next key is the very object of the next name.  __init__ often sets
 * static fields first. */
int
fj_peek_names(PyObject *dict, PyObject *names, Py_ssize_t count, PyObject **values)
{
    PyObject *const *items = ((PyTupleObject *)names)->ob_item;
    PyObject *key, *value;
    Py_ssize_t position = 0, before = 0, next = 0;
    while (next < count && fj_compat_dict_next(dict, &position, &key, &value)) {
        if (FJ_UNLIKELY(key != items[next])) {
            position = before;
            break;
        }
        values[next++] = value;
        before = position;
    }
    return FJ_LIKELY(next == count && PyDict_GET_SIZE(dict) == count) ||
                   peek_in_other_order(dict, items, count, PASSED, values, position, next)
               ? 1
               : look_up(dict, items, count, values);
}

int
fj_peek_dict(const FjNode *node, PyObject *dict, PyObject **children)
{
    Py_ssize_t count = PyTuple_GET_SIZE(node->aux);
    if (PyDict_GET_SIZE(dict) != count) {
        return 0;
    }
    if (!(node->flags & FJ_NODE_PLAIN_KEYS)) {
        return FJ_NEEDS_PYTHON;
    }
    if (node->code == FJ_DEFAULT_DICT) {
        PyObject *factory = PyObject_GetAttrString(dict, "default_factory");
        if (factory == NULL) {
            return -1;
        }
        *children++ = factory;
        Py_DECREF(factory); /* the dict holds it */
    }
    return fj_peek_names(dict, node->aux, count, children);
}

/* Returns the keys as a tuple, sorted as in JAX, except an OrderedDict's. */
static PyObject *
sorted_keys(FjKindCode code, PyObject *dict)
{
    PyObject *keys = PySequence_List(dict), *tuple = NULL;
    if (keys != NULL && (code == FJ_ORDERED_DICT || PyList_Sort(keys) == 0)) {
        tuple = PyList_AsTuple(keys);
    }
    Py_XDECREF(keys);
    return tuple;
}

/* Reads the values as children from number `first` on. */
static int
read_values(FjContents *c, PyObject *dict, PyObject *keys, Py_ssize_t first)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *value = fj_compat_dict_get(dict, PyTuple_GET_ITEM(keys, i));
        if (value == NULL) {
            c->children.count = first + i;
            return PyErr_Occurred() ? -1 : 0;
        }
        c->children.items[first + i] = value;
        int is_plain = PyUnicode_CheckExact(PyTuple_GET_ITEM(keys, i)) ||
                       PyLong_CheckExact(PyTuple_GET_ITEM(keys, i));
        c->flags &= is_plain ? FJ_NODE_PLAIN_KEYS : 0;
    }
    c->runs_python = c->code == FJ_ORDERED_DICT || !(c->flags & FJ_NODE_PLAIN_KEYS);
    return 1;
}

int
fj_contents_read_dict(FjContents *c, FjKindCode code, PyObject *dict, int is_static)
{
    int has_factory = code == FJ_DEFAULT_DICT;
    c->code = code;
    c->flags = FJ_NODE_PLAIN_KEYS;
    c->type = Py_TYPE(dict);
    c->aux = c->keys != NULL ? Py_NewRef(c->keys) : sorted_keys(code, dict);
    if (c->aux == NULL) {
        c->failed_to = "sort";
        return -1;
    }
    if (fj_contents_reserve(c, PyTuple_GET_SIZE(c->aux) + has_factory) < 0) {
        return -1;
    }
    c->children.trees = is_static ? c->children.count : has_factory;
    if (has_factory) {
        c->children.items[0] = PyObject_GetAttrString(dict, "default_factory");
        if (c->children.items[0] == NULL) {
            c->children.count = 0;
            return -1;
        }
    }
    return read_values(c, dict, c->aux, has_factory);
}

static int
read_dict(FjContents *c, PyObject *dict, FjNodeKind *kind)
{
    return fj_contents_read_dict(c, kind->code, dict, 0);
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

const FjReader fj_dict_reader = {read_dict, build_dict};
