/* The walk of a match (match.c) that may run Python code: `classify` for a new type,
 * `is_array` for types that are asked each time (tracers), `key` functions, __hash__ and
 * __eq__ of mutable statics, comparisons of a dict's keys, the functions of custom nodes, and
 * getattr for objects.  So it holds a reference to each object that it looks at, and checks
 * sizes again after each child.
 */
#include "walk/match_walks.h"

#include "structure/fields.h"
#include "structure/statics.h"

static int match_node(FjMatcher *m, PyObject *object);

/* ---- leaves ---- */

static int
match_array(FjMatcher *m, PyObject *object)
{
    if (FJ_LIKELY(fj_registry_is_array_type(m->registry, Py_TYPE(object)))) {
        return fj_leafbuf_push(m->arrays, object) < 0 ? FJ_MATCH_ERROR : FJ_MATCH_YES;
    }
    FjNodeKind *kind = fj_registry_kind(m->registry, object);
    if (kind == NULL) {
        return FJ_MATCH_ERROR;
    }
    FjKindCode code = fj_registry_code(m->registry, kind);
    int is_array = code == FJ_MAYBE_ARRAY ? fj_registry_is_array(m->registry, object)
                                          : code == FJ_ARRAY || fj_match_is_number(m, object);
    Py_DECREF(kind);
    if (is_array > 0 && fj_leafbuf_push(m->arrays, object) < 0) {
        return FJ_MATCH_ERROR;
    }
    return is_array;
}

/* Matches a static or the aux data of a custom node with the node's own, `expected`. */
static inline int
match_value(FjMatcher *m, const FjNode *node, PyObject *expected, PyObject *object)
{
    if (FJ_LIKELY(object == expected) && (node->flags & FJ_NODE_SELF_EQUAL)) {
        return FJ_MATCH_YES;
    }
    if (Py_TYPE(object) != Py_TYPE(expected)) {
        return FJ_MATCH_NO;
    }
    if (FJ_UNLIKELY(node->flags & FJ_NODE_MAYBE_ARRAY)) {
        /* It may have become an array, even if it is the same object. */
        int is_array = fj_registry_is_array(m->registry, object);
        if (is_array != 0) {
            return is_array < 0 ? FJ_MATCH_ERROR : FJ_MATCH_NO;
        }
        return fj_structure_has(m->structure, node, object);
    }
    /* FJ_NODE_SELF_EQUAL is not enough here: the class may have been given an __eq__ since the
     * flag was set. */
    return fj_static_is_inert(m->registry, expected)
               ? fj_static_equal(m->registry, expected, object)
               : fj_structure_has(m->structure, node, object);
}

/* ---- containers ---- */

static int
match_tuple(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (PyTuple_GET_SIZE(object) != (Py_ssize_t)node->arity) {
        return FJ_MATCH_NO;
    }
    int result = FJ_MATCH_YES;
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        result = match_node(m, PyTuple_GET_ITEM(object, i));
    }
    return result;
}

static int
match_list(FjMatcher *m, const FjNode *node, PyObject *object)
{
    for (uint32_t i = 0; i < node->arity; i++) {
        if (PyList_GET_SIZE(object) != (Py_ssize_t)node->arity) {
            return FJ_MATCH_NO;
        }
        int result = match_node(m, PyList_GET_ITEM(object, i));
        if (result != FJ_MATCH_YES) {
            return result;
        }
    }
    return PyList_GET_SIZE(object) == (Py_ssize_t)node->arity;
}

/* Whether the keys of a dict are exactly those of the node.  Used for dicts whose keys are not
 * all str and for OrderedDicts, whose order counts. */
static int
match_keys(FjMatcher *m, const FjNode *node, PyObject *object)
{
    int result = FJ_MATCH_ERROR;
    PyObject *tuple = NULL;
    PyObject *keys = PySequence_List(object);
    if (keys == NULL) {
        return FJ_MATCH_ERROR;
    }
    if (node->code != FJ_ORDERED_DICT && PyList_Sort(keys) < 0) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear(); /* flatten.c raises it again, with the path */
            result = FJ_MATCH_NO;
        }
    }
    else if ((tuple = PyList_AsTuple(keys)) != NULL) {
        result = fj_structure_has(m->structure, node, tuple);
    }
    Py_XDECREF(tuple);
    Py_DECREF(keys);
    return result;
}

static int
match_dict(FjMatcher *m, const FjNode *node, PyObject *object)
{
    Py_ssize_t size = PyTuple_GET_SIZE(node->aux);
    int plain = node->flags & FJ_NODE_PLAIN_KEYS && node->code != FJ_ORDERED_DICT;
    if (PyDict_GET_SIZE(object) != size) {
        return FJ_MATCH_NO;
    }
    /* Keys that are exactly str are found one by one, without Python code. */
    int result = plain && fj_compat_dict_is_unicode(object) ? FJ_MATCH_YES
                                                            : match_keys(m, node, object);
    if (result == FJ_MATCH_YES && node->code == FJ_DEFAULT_DICT) {
        PyObject *factory = PyObject_GetAttrString(object, "default_factory");
        if (factory == NULL) {
            return FJ_MATCH_ERROR;
        }
        result = match_node(m, factory);
        Py_DECREF(factory);
    }
    for (Py_ssize_t i = 0; i < size && result == FJ_MATCH_YES; i++) {
        PyObject *value = PyDict_GetItemWithError(object, PyTuple_GET_ITEM(node->aux, i));
        if (value == NULL) {
            return PyErr_Occurred() ? FJ_MATCH_ERROR : FJ_MATCH_NO;
        }
        result = match_node(m, value);
    }
    return result;
}

static int
match_module(FjMatcher *m, const FjNode *node, PyObject *object)
{
    int wrapper = fj_fields_is_wrapper(object, fj_node_kind(node));
    if (wrapper != !!(node->flags & FJ_NODE_WRAPPER)) {
        return wrapper < 0 ? FJ_MATCH_ERROR : FJ_MATCH_NO;
    }
    int result = FJ_MATCH_YES;
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        PyObject *value = NULL;
        if (fj_fields_get(object, fj_node_kind(node), i, fj_registry_missing(m->registry),
                          &value) < 0) {
            return FJ_MATCH_ERROR;
        }
        if (m->next->code == FJ_MISSING) {
            m->next++;
            result = value == NULL || value == fj_registry_missing(m->registry);
        }
        else {
            result = value == NULL ? FJ_MATCH_NO : match_node(m, value);
        }
        Py_XDECREF(value);
    }
    return result;
}

static int
match_object(FjMatcher *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    int result = FJ_MATCH_YES;
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        PyObject *value = fj_fields_getattr(object, kind, i);
        if (value == NULL) {
            return FJ_MATCH_ERROR;
        }
        result = match_node(m, value); /* the node of a dict field is a dict */
        Py_DECREF(value);
    }
    return result;
}

static int
match_custom(FjMatcher *m, const FjNode *node, PyObject *object)
{
    int result = FJ_MATCH_ERROR;
    PyObject *children = NULL, *aux = NULL, *tuple = NULL;
    PyObject *parts = fj_registry_flatten(m->registry, object, &children, &aux);
    if (parts == NULL) {
        return FJ_MATCH_ERROR;
    }
    result = match_value(m, node, fj_structure_value(node), aux);
    if (result == FJ_MATCH_YES) {
        tuple = fj_tuple_of(children);
        result = tuple == NULL ? FJ_MATCH_ERROR : match_tuple(m, node, tuple);
    }
    Py_XDECREF(tuple);
    Py_DECREF(parts);
    return result;
}

/* ---- the walk ---- */

/* The type of the object that the node of a container stands for. */
static const PyTypeObject *
type_of(const FjMatcher *m, const FjNode *node)
{
    return node->code == FJ_TUPLE  ? &PyTuple_Type
           : node->code == FJ_LIST ? &PyList_Type
                                   : fj_structure_info(m->structure, node)->type;
}

static int
match_container(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (FJ_UNLIKELY(node->flags & FJ_NODE_IDENTITY)) {
        fj_leafbuf_push_reserved(m->objects, object);
    }
    if (Py_TYPE(object) != type_of(m, node)) {
        return FJ_MATCH_NO;
    }
    switch (node->code) {
    case FJ_TUPLE:
        if (object == node->aux) { /* it cannot have changed */
            m->next = fj_structure_skip(m->structure, node);
            return FJ_MATCH_YES;
        }
        return match_tuple(m, node, object);
    case FJ_NAMEDTUPLE:
        return match_tuple(m, node, object);
    case FJ_LIST:
        return match_list(m, node, object);
    case FJ_MODULE:
        return match_module(m, node, object);
    case FJ_OBJECT:
        return match_object(m, node, object);
    case FJ_CUSTOM:
        return node->flags & FJ_NODE_ITSELF
                   ? match_value(m, node, fj_structure_value(node), object)
                   : match_custom(m, node, object);
    default:
        return match_dict(m, node, object);
    }
}

static int
match_node(FjMatcher *m, PyObject *object)
{
    const FjNode *node = m->next++;
    if (FJ_UNLIKELY(node->code == FJ_NONE)) {
        return object == Py_None;
    }
    if (FJ_UNLIKELY(node->code == FJ_REF)) { /* the object of this number comes before it */
        return m->objects->items[fj_node_number(node)] == object;
    }
    if (Py_EnterRecursiveCall(" while matching a pytree")) {
        return FJ_MATCH_ERROR;
    }
    Py_INCREF(object);
    int result = node->code == FJ_ARRAY    ? match_array(m, object)
                 : node->code == FJ_STATIC ? match_value(m, node, node->aux, object)
                                           : match_container(m, node, object);
    Py_DECREF(object);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_match_holding(FjMatcher *m, PyObject *const *objects, Py_ssize_t count)
{
    int result = FJ_MATCH_YES;
    if (fj_compat_enter_frames(1) < 0) {
        return FJ_MATCH_ERROR;
    }
    for (Py_ssize_t i = 0; i < count && result == FJ_MATCH_YES; i++) {
        if (m->next->code == FJ_MISSING) {
            m->next++;
            result = objects[i] == NULL;
        }
        else {
            result = objects[i] == NULL ? FJ_MATCH_NO : match_node(m, objects[i]);
        }
    }
    fj_compat_leave_frames(1);
    return result;
}
