/* The walk that knows nothing yet: it asks for kinds and writes a Structure.
 *
 * Python code can run anywhere in here: in classify and is_array for a type or an instance
 * that is met, in the comparisons of sorting keys, in `describe` and in the getattr of
 * dataclasses, in finalizers.  So each object is held by a strong reference while it is
 * walked, sizes are asked again after each child, and nodes are named by index, since the
 * array of nodes moves as it grows.
 */
#include "flatten.h"

#include "fields.h"
#include "statics.h"

typedef struct {
    FjStructure *structure;
    FjLeafBuf *arrays;
} Walk;

static int walk(Walk *w, PyObject *object);

static FjRegistry *
registry_of(Walk *w)
{
    return w->structure->registry;
}

static int
add_leaf(Walk *w, FjKindCode code, PyObject *aux)
{
    Py_ssize_t index = fj_structure_append(w->structure, code, 0, NULL, aux);
    if (index < 0) {
        return -1;
    }
    fj_structure_close(w->structure, index);
    return 0;
}

static int
add_array(Walk *w, PyObject *object)
{
    if (add_leaf(w, FJ_ARRAY, NULL) < 0) {
        return -1;
    }
    w->structure->arrays++;
    return fj_leafbuf_push(w->arrays, object);
}

/* `field`: FJ_NODE_FIELD, or 0 for a leaf. */
static int
add_static(Walk *w, PyObject *object, int field)
{
    if (add_leaf(w, FJ_STATIC, object) < 0) {
        return -1;
    }
    FjNode *node = &w->structure->nodes[w->structure->count - 1];
    node->flags |= (uint8_t)field;
    if (fj_static_is_inert(object)) {
        node->flags |= FJ_NODE_INERT;
    }
    else {
        w->structure->careful = 1;
    }
    return 0;
}

static Py_ssize_t
open_node(Walk *w, FjKindCode code, Py_ssize_t children, PyTypeObject *type, PyObject *aux)
{
    return fj_structure_append(w->structure, code, children, type, aux);
}

/* (P) Gives the exception that is set the path at which `object` would have stood. */
static void
blame_here(Walk *w, PyObject *object, const char *deed)
{
    PyObject *exception = fj_compat_take_exception();
    Py_ssize_t index = fj_structure_append(w->structure, FJ_MISSING, 0, NULL, object);
    PyErr_Clear(); /* no memory for a path: the exception itself matters more */
    fj_compat_give_exception(exception);
    if (index >= 0) {
        fj_structure_blame(w->structure, (uint32_t)index, deed);
    }
}

/* Whether a tuple, whose node has just been closed, can never change: see structure.h. */
static int
is_constant(const FjStructure *structure, uint32_t index)
{
    uint32_t end = structure->rest[index].end;
    for (uint32_t i = index + 1; i < end; i = structure->rest[i].end) {
        const FjNode *child = &structure->nodes[i];
        if (!(child->code == FJ_NONE || child->flags & FJ_NODE_INERT ||
              (child->code == FJ_TUPLE && child->aux != NULL))) {
            return 0;
        }
    }
    return 1;
}

static int
walk_tuple(Walk *w, FjKindCode code, PyObject *tuple, FjNodeKind *kind)
{
    Py_ssize_t size = PyTuple_GET_SIZE(tuple);
    Py_ssize_t index = kind == NULL
                           ? open_node(w, code, size, NULL, NULL)
                           : open_node(w, code, size, Py_TYPE(tuple), (PyObject *)kind);
    if (index < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (walk(w, PyTuple_GET_ITEM(tuple, i)) < 0) {
            return -1;
        }
    }
    fj_structure_close(w->structure, index);
    if (code == FJ_TUPLE && is_constant(w->structure, (uint32_t)index)) {
        w->structure->nodes[index].aux = Py_NewRef(tuple);
    }
    return 0;
}

static int
walk_list(Walk *w, PyObject *list)
{
    Py_ssize_t size = PyList_GET_SIZE(list);
    Py_ssize_t index = open_node(w, FJ_LIST, size, NULL, NULL);
    if (index < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (PyList_GET_SIZE(list) != size) {
            PyErr_SetString(PyExc_RuntimeError, "list changed size while it was flattened");
            return -1;
        }
        PyObject *item = Py_NewRef(PyList_GET_ITEM(list, i));
        int result = walk(w, item);
        Py_DECREF(item);
        if (result < 0) {
            return -1;
        }
    }
    fj_structure_close(w->structure, index);
    return 0;
}

/* The keys of a dict as a new tuple: sorted as JAX sorts them, or in their own order. */
static PyObject *
dict_keys(Walk *w, FjKindCode code, PyObject *dict)
{
    PyObject *keys = PySequence_List(dict);
    if (keys == NULL) {
        return NULL;
    }
    if (code != FJ_ORDERED_DICT && PyList_Sort(keys) < 0) {
        Py_DECREF(keys);
        blame_here(w, dict, "sort");
        return NULL;
    }
    PyObject *tuple = PyList_AsTuple(keys);
    Py_DECREF(keys);
    return tuple;
}

static int
walk_dict_values(Walk *w, PyObject *dict, PyObject *keys)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *value = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(keys, i));
        if (value == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_RuntimeError, "dict changed while it was flattened");
            }
            return -1;
        }
        Py_INCREF(value);
        int result = walk(w, value);
        Py_DECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

static int
walk_dict(Walk *w, FjKindCode code, PyObject *dict)
{
    int result = -1;
    PyObject *factory = NULL;
    PyObject *keys = dict_keys(w, code, dict);
    if (keys == NULL) {
        return -1;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(keys);
    int extra = code == FJ_DEFAULT_DICT;
    Py_ssize_t index = open_node(w, code, size + extra, Py_TYPE(dict), keys);
    if (index < 0) {
        goto done;
    }
    int all_str = 1;
    for (Py_ssize_t i = 0; i < size; i++) {
        all_str &= PyUnicode_CheckExact(PyTuple_GET_ITEM(keys, i));
    }
    if (all_str) {
        w->structure->nodes[index].flags |= FJ_NODE_STR_KEYS;
    }
    if (!all_str || code == FJ_ORDERED_DICT) {
        w->structure->careful = 1;
    }
    if (extra) {
        factory = PyObject_GetAttrString(dict, "default_factory");
        if (factory == NULL || add_static(w, factory, FJ_NODE_FIELD) < 0) {
            goto done;
        }
    }
    if (walk_dict_values(w, dict, keys) == 0) {
        fj_structure_close(w->structure, index);
        result = 0;
    }
done:
    Py_XDECREF(factory);
    Py_DECREF(keys);
    return result;
}

static int
walk_module(Walk *w, PyObject *object, FjNodeKind *kind)
{
    PyObject *missing = registry_of(w)->missing;
    int wrapper = fj_fields_has_wrapper(object, kind);
    if (wrapper < 0) {
        return -1;
    }
    Py_ssize_t count = kind->dynamic + kind->statics + (wrapper ? kind->wrapper : 0);
    Py_ssize_t index = open_node(w, FJ_MODULE, count, Py_TYPE(object), (PyObject *)kind);
    if (index < 0) {
        return -1;
    }
    w->structure->nodes[index].flags |= wrapper ? FJ_NODE_WRAPPER : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = NULL;
        int found = fj_fields_get(object, kind, i, missing, &value);
        int result = found < 0           ? -1
                     : found == 0        ? add_leaf(w, FJ_MISSING, NULL)
                     : i < kind->dynamic ? walk(w, value)
                                         : add_static(w, value, FJ_NODE_FIELD);
        Py_XDECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    fj_structure_close(w->structure, index);
    return 0;
}

static int
walk_dataclass(Walk *w, PyObject *object, FjNodeKind *kind)
{
    Py_ssize_t count = kind->dynamic + kind->statics;
    Py_ssize_t index = open_node(w, FJ_DATACLASS, count, Py_TYPE(object), (PyObject *)kind);
    if (index < 0) {
        return -1;
    }
    w->structure->careful = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyObject_GetAttr(object, PyTuple_GET_ITEM(kind->names, i));
        int result = value == NULL       ? -1
                     : i < kind->dynamic ? walk(w, value)
                                         : add_static(w, value, FJ_NODE_FIELD);
        Py_XDECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    fj_structure_close(w->structure, index);
    return 0;
}

static int
walk_generic(Walk *w, PyObject *object)
{
    int result = -1;
    PyObject *children = NULL, *aux = NULL, *unflatten = NULL, *pair = NULL;
    PyObject *parts = PyObject_CallOneArg(registry_of(w)->describe, object);
    if (parts == NULL) {
        blame_here(w, object, "flatten");
        return -1;
    }
    if (!PyArg_ParseTuple(parts, "O!OO;describe() must return (children, aux, unflatten)",
                          &PyTuple_Type, &children, &aux, &unflatten)) {
        goto done;
    }
    pair = PyTuple_Pack(2, aux, unflatten);
    if (pair == NULL) {
        goto done;
    }
    Py_ssize_t index =
        open_node(w, FJ_GENERIC, PyTuple_GET_SIZE(children), Py_TYPE(object), pair);
    if (index < 0) {
        goto done;
    }
    w->structure->careful = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(children); i++) {
        if (walk(w, PyTuple_GET_ITEM(children, i)) < 0) {
            goto done;
        }
    }
    fj_structure_close(w->structure, index);
    result = 0;
done:
    Py_XDECREF(pair);
    Py_DECREF(parts);
    return result;
}

static int
walk_node(Walk *w, PyObject *object, FjNodeKind *kind)
{
    switch (kind->code) {
    case FJ_TUPLE:
        return walk_tuple(w, FJ_TUPLE, object, NULL);
    case FJ_NAMEDTUPLE:
        return walk_tuple(w, FJ_NAMEDTUPLE, object, kind);
    case FJ_LIST:
        return walk_list(w, object);
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        return walk_dict(w, kind->code, object);
    case FJ_MODULE:
        return walk_module(w, object, kind);
    case FJ_DATACLASS:
        return walk_dataclass(w, object, kind);
    default:
        return walk_generic(w, object);
    }
}

/* The caller holds `object`. */
static int
walk(Walk *w, PyObject *object)
{
    FjNodeKind *kind = fj_registry_kind(registry_of(w), object);
    if (kind == NULL) {
        return -1;
    }
    int result;
    switch (kind->code) {
    case FJ_ARRAY:
        result = add_array(w, object);
        break;
    case FJ_STATIC:
        result = add_static(w, object, 0);
        break;
    case FJ_NONE:
        result = add_leaf(w, FJ_NONE, NULL);
        break;
    case FJ_ASK:
        result = fj_registry_ask(registry_of(w), object);
        if (result >= 0) {
            result = result ? add_array(w, object) : add_static(w, object, 0);
        }
        break;
    default:
        result = -1;
        if (Py_EnterRecursiveCall(" while flattening a pytree: it is too deep, or a cycle") ==
            0) {
            result = walk_node(w, object, kind);
            Py_LeaveRecursiveCall();
        }
    }
    Py_DECREF(kind);
    return result;
}

FjStructure *
fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays)
{
    Walk w = {fj_structure_new(registry), arrays};
    if (w.structure != NULL && walk(&w, tree) < 0) {
        Py_CLEAR(w.structure);
    }
    return w.structure;
}

FjStructure *
fj_flatten_slots(FjRegistry *registry, PyObject *names, PyObject *const *slots,
                 FjLeafBuf *arrays)
{
    Walk w = {fj_structure_new(registry), arrays};
    if (w.structure == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    Py_ssize_t root = open_node(&w, FJ_SLOTS, count, NULL, names);
    if (root < 0) {
        goto error;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int result = slots[i] == NULL ? add_leaf(&w, FJ_MISSING, NULL) : walk(&w, slots[i]);
        if (result < 0) {
            goto error;
        }
    }
    fj_structure_close(w.structure, root);
    return w.structure;

error:
    Py_DECREF(w.structure);
    return NULL;
}
