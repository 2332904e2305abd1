/* Comparing what a walk meets with the nodes that are expected: expected.h.
 *
 * Python code can run in `classify` for a new type, in `is_array` for types that are asked
 * each time (tracers), in keys, __hash__ and __eq__ of mutable statics, and where the keys of
 * a dict are sorted and compared.
 */
#include "walk/expected.h"

#include "structure/statics.h"

static int
differ(FjExpected *e)
{
    e->differs = 1;
    return -1;
}

/* 0 if `same`; -1 if not, or with an error. */
static int
expect(FjExpected *e, int same)
{
    return same > 0 ? 0 : same == 0 ? differ(e) : -1;
}

/* Whether an object is an array where one is expected, and pushes it.  1, 0, or -1 with an
 * error. */
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

/* Matches a static or the aux data of a custom node with the node's own, `expected`. */
static inline int
match_value(const FjExpected *e, const FjNode *node, PyObject *expected, PyObject *object)
{
    if (FJ_LIKELY(object == expected) && (node->flags & FJ_NODE_SELF_EQUAL)) {
        return 1;
    }
    if (Py_TYPE(object) != Py_TYPE(expected)) {
        return 0;
    }
    if (FJ_UNLIKELY(node->flags & FJ_NODE_MAYBE_ARRAY)) {
        /* It may have become an array, even if it is the same object. */
        int is_array = fj_registry_is_array(e->structure->registry, object);
        if (is_array != 0) {
            return is_array < 0 ? -1 : 0;
        }
        return fj_structure_has(e->structure, node, object);
    }
    /* FJ_NODE_SELF_EQUAL is not enough here: the class may have been given an __eq__ since the
     * flag was set. */
    return fj_static_is_inert(e->structure->registry, expected)
               ? fj_static_equal(e->structure->registry, expected, object)
               : fj_structure_has(e->structure, node, object);
}

/* The type of the object that a node stands for; NULL if it is no container. */
static const PyTypeObject *
type_of(const FjExpected *e, const FjNode *node)
{
    return node->code == FJ_TUPLE  ? &PyTuple_Type
           : node->code == FJ_LIST ? &PyList_Type
                                   : fj_structure_info(e->structure, node)->type;
}

int
fj_expected_meet(FjExpected *e, PyObject *object)
{
    const FjNode *node = e->next;
    int same;
    switch (node->code) {
    case FJ_ARRAY:
        same = match_array(e, node, object);
        break;
    case FJ_STATIC:
        same = match_value(e, node, node->aux, object);
        break;
    case FJ_NONE:
        same = object == Py_None;
        break;
    case FJ_REF:
        return 0;
    default:
        if (Py_TYPE(object) != type_of(e, node)) {
            return differ(e);
        }
        if ((node->flags & (FJ_NODE_ITSELF | FJ_NODE_IDENTITY)) != FJ_NODE_ITSELF) {
            return 0;
        }
        same = match_value(e, node, fj_structure_value(node), object);
    }
    e->next++;
    return expect(e, same) < 0 ? -1 : 1;
}

int
fj_expected_field(FjExpected *e, PyObject *value)
{
    const FjNode *node = e->next++;
    return expect(e, node->code == FJ_STATIC ? match_value(e, node, node->aux, value) : 0);
}

int
fj_expected_pass(FjExpected *e, FjKindCode code)
{
    return expect(e, e->next++->code == code);
}

int
fj_expected_ref(FjExpected *e, uint32_t number)
{
    const FjNode *node = e->next++;
    return expect(e, node->code == FJ_REF && fj_node_number(node) == number);
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
                 const PyObject *aux, int flags)
{
    const FjNode *node = e->next++;
    int same = node->code == code && node->arity == arity &&
               fj_structure_info(e->structure, node)->type == type &&
               (!fj_node_has_kind(node) || node->aux == aux) &&
               !((node->flags ^ flags) & FJ_NODE_WRAPPER);
    return expect(e, same) < 0 ? -1 : node - e->structure->nodes;
}

int
fj_expected_open_custom(FjExpected *e, Py_ssize_t arity, PyTypeObject *type,
                        PyObject *aux_data)
{
    const FjNode *node = e->next;
    return fj_expected_open(e, FJ_CUSTOM, arity, type, NULL, node->flags) < 0
               ? -1
               : expect(e, match_value(e, node, fj_structure_value(node), aux_data));
}

/* The keys of a dict as flatten.c sorts them: a new tuple, or NULL. */
static PyObject *
sorted_keys(FjExpected *e, FjKindCode code, PyObject *dict)
{
    PyObject *keys = PySequence_List(dict), *tuple = NULL;
    if (keys != NULL && code != FJ_ORDERED_DICT && PyList_Sort(keys) < 0) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear(); /* flattening raises it again, with the path */
            differ(e);
        }
    }
    else if (keys != NULL) {
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
    if (node->code != code || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(node->aux)) {
        differ(e);
    }
    else if (code != FJ_ORDERED_DICT && node->flags & FJ_NODE_PLAIN_KEYS &&
             fj_compat_dict_is_unicode(dict)) {
        return Py_NewRef(node->aux); /* each is looked up, without Python code */
    }
    else if ((keys = sorted_keys(e, code, dict)) != NULL &&
             expect(e, fj_structure_has(e->structure, node, keys)) < 0) {
        Py_CLEAR(keys);
    }
    return keys;
}
