/* Compares parts of a tree with the expected nodes (expected.h).
 *
 * Python code can run in `classify` for a new type, in `is_array` for types such as tracers,
 * in keys, __hash__ and __eq__ of mutable statics, in sorting and comparing the keys of a
 * dict, and in formatting an error (words.c). */
#include "walk/expected.h"

#include "structure/words.h"

/* ---- differences ---- */

/* Raises a ValueError: the tree has `found` at a node, the Structure `expected`.  `what` names
 * the difference (`difference` in _base/_words.py).  Steals both (NULL: an earlier error). */
static int
raise_difference(const FjExpected *e, const FjNode *node, const char *what, PyObject *found,
                 PyObject *expected)
{
    PyObject *path =
        found == NULL || expected == NULL
            ? NULL
            : fj_path_of_node(e->structure, (uint32_t)(node - e->structure->nodes));
    PyObject *text = path == NULL
                         ? NULL
                         : fj_words_call(e->structure->registry, "difference", "(sOssOO)",
                                         what, path, e->name, e->model, found, expected);
    if (text != NULL) {
        PyErr_SetObject(PyExc_ValueError, text);
    }
    Py_XDECREF(path);
    Py_XDECREF(text);
    Py_XDECREF(found);
    Py_XDECREF(expected);
    return -1;
}

/* The tree has `found` at a node, the Structure `expected`; NULL if absent.  Always -1. */
static int
differ(FjExpected *e, const FjNode *node, const char *what, PyObject *found,
       PyObject *expected)
{
    e->differs = 1;
    return e->name == NULL
               ? -1
               : raise_difference(e, node, what, Py_NewRef(found == NULL ? Py_None : found),
                                  Py_NewRef(expected == NULL ? Py_None : expected));
}

/* Returns the type of the node's object, or NULL for a leaf or an absent node. */
static PyTypeObject *
type_of(const FjExpected *e, const FjNode *node)
{
    return node->code == FJ_NONE    ? Py_TYPE(Py_None)
           : node->code == FJ_TUPLE ? &PyTuple_Type
           : node->code == FJ_LIST  ? &PyList_Type
                                    : fj_structure_info(e->structure, node)->type;
}

/* Returns a new tuple.  The size is -1 for other types than tuple and list. */
static PyObject *
type_and_size(const PyTypeObject *type, Py_ssize_t size)
{
    int is_sized = type == &PyTuple_Type || type == &PyList_Type;
    return Py_BuildValue("(sn)", type->tp_name, is_sized ? size : -1);
}

/* `size` is the size of a tuple or list in the tree. */
static int
differ_in_type(FjExpected *e, const FjNode *node, const PyTypeObject *type, Py_ssize_t size)
{
    e->differs = 1;
    return e->name == NULL ? -1
                           : raise_difference(e, node, "type", type_and_size(type, size),
                                              type_and_size(type_of(e, node), node->arity));
}

/* Pushes an object if it's an array.  1, 0 if not, or -1 with an error. */
static int
match_array(const FjExpected *e, const FjNode *node, PyObject *object)
{
    if (FJ_LIKELY(fj_registry_is_array_type(e->structure->registry, Py_TYPE(object)))) {
        return fj_leafbuf_push(e->arrays, object) < 0 ? -1 : 1;
    }
    FjNodeKind *kind = fj_registry_kind(e->structure->registry, object);
    if (kind == NULL) {
        return -1;
    }
    FjKindCode code = fj_registry_code(e->structure->registry, kind);
    int is_array =
        code == FJ_MAYBE_ARRAY
            ? fj_registry_is_array(e->structure->registry, object)
            : code == FJ_ARRAY || fj_structure_takes_number(e->structure, node, object);
    Py_DECREF(kind);
    if (is_array > 0 && fj_leafbuf_push(e->arrays, object) < 0) {
        return -1;
    }
    return is_array;
}

/* Matches a static, or aux data, with the node's own.  1, 0, or -1 with an error. */
static int
match_value(const FjExpected *e, const FjNode *node, PyObject *object)
{
    PyObject *expected = fj_structure_value(node);
    if (e->name != NULL) {
        return PyObject_RichCompareBool(expected, object, Py_EQ);
    }
    if (FJ_LIKELY(object == expected) && (node->flags & FJ_NODE_SELF_EQUAL)) {
        return 1;
    }
    if (Py_TYPE(object) != Py_TYPE(expected)) {
        return 0;
    }
    if (FJ_UNLIKELY(node->flags & FJ_NODE_MAYBE_ARRAY)) {
        /* Even the same object can have become an array. */
        int is_array = fj_registry_is_array(e->structure->registry, object);
        if (is_array != 0) {
            return is_array < 0 ? -1 : 0;
        }
    }
    return fj_structure_has(e->structure, node, object);
}

/* fj_expected_meet for an exact comparison. */
static int
meet(FjExpected *e, const FjNode *node, PyObject *object)
{
    int same;
    switch (node->code) {
    case FJ_ARRAY:
        same = match_array(e, node, object);
        break;
    case FJ_STATIC:
        same = match_value(e, node, object);
        break;
    case FJ_REF:
        return 0;
    default:
        if (Py_TYPE(object) != type_of(e, node)) {
            return differ(e, node, "", NULL, NULL);
        }
        if ((node->flags & (FJ_NODE_ITSELF | FJ_NODE_IDENTITY)) != FJ_NODE_ITSELF) {
            return 0;
        }
        same = match_value(e, node, object);
    }
    e->next++;
    return same != 0 ? same : differ(e, node, "", NULL, NULL);
}

int
fj_expected_meet(FjExpected *e, PyObject *object)
{
    const FjNode *node = e->next;
    if (e->name == NULL) {
        return meet(e, node, object);
    }
    if (node->code == FJ_ARRAY) {
        e->next++;
        return fj_leafbuf_push(e->arrays, object) < 0 ? -1 : 1;
    }
    if (node->code == FJ_MISSING) {
        return differ(e, node, "more", object, NULL);
    }
    return Py_TYPE(object) == type_of(e, node)
               ? 0
               : differ_in_type(e, node, Py_TYPE(object),
                                PyTuple_CheckExact(object) || PyList_CheckExact(object)
                                    ? Py_SIZE(object)
                                    : -1);
}

int
fj_expected_field(FjExpected *e, PyObject *value)
{
    const FjNode *node = e->next++;
    if (node->code != FJ_STATIC) {
        return differ(e, node, "more", value, NULL);
    }
    int same = match_value(e, node, value);
    return same > 0 ? 0 : same < 0 ? -1 : differ(e, node, "value", value, node->aux);
}

int
fj_expected_pass(FjExpected *e, FjKindCode code)
{
    const FjNode *node = e->next++;
    return node->code == code ? 0 : differ(e, node, "less", NULL, NULL);
}

int
fj_expected_identity(FjExpected *e, PyObject *object, const FjLeafBuf *objects)
{
    const FjNode *node = e->next;
    if (node->code != FJ_REF) {
        return fj_node_has_number(node) ? 0 : differ(e, node, "", NULL, NULL);
    }
    e->next++;
    return objects->items[fj_node_number(node)] == object ? 1
                                                          : differ(e, node, "", NULL, NULL);
}

int
fj_expected_skip(FjExpected *e, PyObject *tuple)
{
    const FjNode *node = e->next;
    if (node->code != FJ_TUPLE || node->aux != tuple) {
        return 0;
    }
    e->next = fj_structure_skip(e->structure, node);
    return 1;
}

Py_ssize_t
fj_expected_open(FjExpected *e, FjKindCode code, Py_ssize_t arity, PyTypeObject *type,
                 PyObject *aux, int flags)
{
    const FjNode *node = e->next++;
    int is_dict = code == FJ_DICT || code == FJ_ORDERED_DICT || code == FJ_DEFAULT_DICT;
    int same = node->code == code && node->arity == arity &&
               fj_structure_info(e->structure, node)->type == type &&
               (!fj_node_has_kind(node) || node->aux == aux) &&
               !((node->flags ^ flags) & FJ_NODE_WRAPPER);
    if (same && is_dict && e->name != NULL) {
        same = PyObject_RichCompareBool(aux, node->aux, Py_EQ);
    }
    if (same != 0) {
        return same < 0 ? -1 : node - e->structure->nodes;
    }
    if (code == FJ_TUPLE || code == FJ_LIST) {
        return differ_in_type(e, node, type_of(e, node), arity);
    }
    return is_dict           ? differ(e, node, "keys", aux, node->aux)
           : e->name == NULL ? differ(e, node, "", NULL, NULL)
                             : raise_difference(e, node, "attributes", type_and_size(type, -1),
                                                Py_NewRef(Py_None));
}

int
fj_expected_open_custom(FjExpected *e, Py_ssize_t arity, PyTypeObject *type,
                        PyObject *aux_data)
{
    const FjNode *node = e->next;
    if (node->code != FJ_CUSTOM || (node->arity != (uint32_t)arity && e->name == NULL)) {
        return fj_expected_open(e, FJ_CUSTOM, arity, type, NULL, 0) < 0 ? -1 : 0;
    }
    e->next++;
    int same = match_value(e, node, aux_data);
    if (same <= 0) {
        return same < 0 ? -1 : differ(e, node, "aux data", aux_data, fj_structure_value(node));
    }
    return node->arity == (uint32_t)arity
               ? 0
               : raise_difference(e, node, "children", PyLong_FromSsize_t(arity),
                                  PyLong_FromUnsignedLong(node->arity));
}

/* True if a dict has the node's keys, by ==. 1, 0, or -1 with an error. */
static int
has_keys(const FjNode *node, PyObject *dict)
{
    int same = PyDict_GET_SIZE(dict) == PyTuple_GET_SIZE(node->aux);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node->aux) && same > 0; i++) {
        same = PyDict_Contains(dict, PyTuple_GET_ITEM(node->aux, i));
    }
    return same;
}

PyObject *
fj_sorted_keys(FjKindCode code, PyObject *dict)
{
    PyObject *keys = PySequence_List(dict), *tuple = NULL;
    if (keys != NULL && (code == FJ_ORDERED_DICT || PyList_Sort(keys) == 0)) {
        tuple = PyList_AsTuple(keys);
    }
    Py_XDECREF(keys);
    return tuple;
}

PyObject *
fj_expected_keys(FjExpected *e, FjKindCode code, PyObject *dict)
{
    const FjNode *node = e->next;
    PyObject *keys = NULL;
    int same, in_own_order = node->code != code || code == FJ_ORDERED_DICT;
    if (e->name != NULL) { /* fj_expected_open compares keys in their own order */
        same = in_own_order ? 1 : has_keys(node, dict);
        keys = in_own_order ? fj_tuple_of(dict) : Py_NewRef(node->aux);
    }
    else if (node->code != code || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(node->aux)) {
        same = 0;
    }
    else if (!in_own_order && node->flags & FJ_NODE_PLAIN_KEYS &&
             fj_compat_dict_is_unicode(dict)) {
        same = 1; /* looking up these keys runs no Python code */
        keys = Py_NewRef(node->aux);
    }
    else {
        keys = fj_sorted_keys(code, dict);
        same = keys == NULL ? -1 : fj_structure_has(e->structure, node, keys);
        if (keys == NULL && PyErr_ExceptionMatches(PyExc_Exception) &&
            !PyErr_ExceptionMatches(PyExc_MemoryError)) {
            PyErr_Clear(); /* flattening raises it later, with the path */
            same = 0;
        }
    }
    if (same <= 0) {
        Py_CLEAR(keys);
        if (same == 0) {
            differ(e, node, "keys", dict, node->aux);
        }
    }
    return keys;
}
