/* Flattens a tree up to the leaves of a Structure: walks both side by side, and takes the
 * subtree of the tree that is in the place of each leaf.
 *
 * The comparison is that of jax.tree_util: types must be identical; static fields, aux data
 * and keys must be equal by ==; the keys of a dict may be in any order, those of an
 * OrderedDict may not.
 *
 * Python code can run in the functions of custom nodes, in `describe`, in getattr for objects,
 * in the __eq__ of static fields, aux data and keys, in the repr of those that go into an
 * error message, and in finalizers.  So the walk holds a reference to each object while it
 * walks it, and checks sizes again after each child.
 */
#include "walk/flatten_up_to.h"

#include "structure/fields.h"
#include "structure/paths.h"

typedef struct {
    FjStructure *structure;
    const FjNode *next;
    FjLeafBuf *leaves;
    const char *name;  /* of the tree, in errors */
    const char *model; /* of the Structure, in errors */
} FlattenUpTo;

static int walk(FlattenUpTo *u, PyObject *object);

/* ---- the error ---- */

/* "a `list` of 3", or "a `list`" if `size` is negative; a new reference. */
static PyObject *
describe_type(const char *type, Py_ssize_t size)
{
    return size < 0 ? PyUnicode_FromFormat("a `%s`", type)
                    : PyUnicode_FromFormat("a `%s` of %zd", type, size);
}

static PyObject *
describe_node(FlattenUpTo *u, const FjNode *node)
{
    switch (node->code) {
    case FJ_NONE:
        return PyUnicode_FromString("None");
    case FJ_TUPLE:
        return describe_type("tuple", node->arity);
    case FJ_LIST:
        return describe_type("list", node->arity);
    default:
        return describe_type(fj_structure_info(u->structure, node)->type->tp_name, -1);
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

/* Raises a ValueError: the tree has `found` at the place of `node`, the Structure `expected`.
 * Steals both; one that is NULL is an error that is passed on.  Always -1. */
static int
raise_difference(FlattenUpTo *u, const FjNode *node, PyObject *found, PyObject *expected)
{
    uint32_t index = (uint32_t)(node - u->structure->nodes);
    PyObject *where = found == NULL || expected == NULL
                          ? NULL
                          : fj_path_text(fj_path_of_node(u->structure, index));
    if (where != NULL) {
        PyErr_Format(PyExc_ValueError, "%s differs from %s at %U: it has %U, where %s has %U",
                     u->name, u->model, where, found, u->model, expected);
    }
    Py_XDECREF(found);
    Py_XDECREF(expected);
    Py_XDECREF(where);
    return -1;
}

static int
raise_type_differs(FlattenUpTo *u, const FjNode *node, PyObject *object)
{
    return raise_difference(u, node, describe_object(object), describe_node(u, node));
}

static int
raise_other_attributes(FlattenUpTo *u, const FjNode *node)
{
    const char *type = fj_node_kind(node)->type->tp_name;
    return raise_difference(u, node, PyUnicode_FromFormat("a `%s` of other attributes", type),
                            describe_type(type, -1));
}

static int
raise_static_differs(FlattenUpTo *u, const FjNode *node, PyObject *name, PyObject *value,
                     PyObject *expected)
{
    PyObject *found = PyUnicode_FromFormat("%S=%R", name, value);
    PyObject *other = found == NULL ? NULL : PyUnicode_FromFormat("%S=%R", name, expected);
    return raise_difference(u, node, found, other);
}

/* The reprs are Python code, so the second is not called if the first has raised. */
static int
raise_value_differs(FlattenUpTo *u, const FjNode *node, const char *before, PyObject *value,
                    const char *before_expected, PyObject *expected)
{
    PyObject *found = PyUnicode_FromFormat("%s%R", before, value);
    PyObject *other =
        found == NULL ? NULL : PyUnicode_FromFormat("%s%R", before_expected, expected);
    return raise_difference(u, node, found, other);
}

/* ---- the nodes ---- */

/* Whether two objects are identical or equal, as elements of a tuple are compared.  1, 0, or
 * -1 with an error. */
static int
equal(PyObject *a, PyObject *b)
{
    return PyObject_RichCompareBool(a, b, Py_EQ);
}

/* Walks the items of an exact tuple or list, or of a named tuple. */
static int
walk_items(FlattenUpTo *u, const FjNode *node, PyObject *sequence)
{
    int is_list = PyList_Check(sequence);
    if (node->flags & FJ_NODE_LEAVES) {
        return fj_leafbuf_extend(u->leaves, PySequence_Fast_ITEMS(sequence), node->arity);
    }
    for (uint32_t i = 0; i < node->arity; i++) {
        if (is_list && PyList_GET_SIZE(sequence) != node->arity) {
            PyErr_SetString(PyExc_RuntimeError, "list changed size while it was flattened");
            return -1;
        }
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i));
        int result = walk(u, item);
        Py_DECREF(item);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

static int
raise_keys_differ(FlattenUpTo *u, const FjNode *node, PyObject *dict)
{
    PyObject *keys = PyDict_Keys(dict);
    PyObject *found = keys == NULL ? NULL : PyUnicode_FromFormat("the keys %R", keys);
    PyObject *expected = found == NULL ? NULL : PyUnicode_FromFormat("%R", node->aux);
    Py_XDECREF(keys);
    return raise_difference(u, node, found, expected);
}

/* Whether an OrderedDict has the keys of the node in the same order.  1, 0, or -1 with an
 * error. */
static int
has_keys_in_order(const FjNode *node, PyObject *dict)
{
    PyObject *keys = fj_tuple_of(dict);
    int same = keys == NULL ? -1 : equal(keys, node->aux);
    Py_XDECREF(keys);
    return same;
}

/* Walks a field, which is a subtree or a static that must be equal; `value` is NULL if the
 * field is absent. */
static int
walk_field(FlattenUpTo *u, const FjNode *node, PyObject *name, PyObject *value)
{
    const FjNode *field = u->next;
    if (field->code == FJ_MISSING || value == NULL) {
        if (field->code != FJ_MISSING || value != NULL) {
            return raise_difference(
                u, node, PyUnicode_FromFormat("%s `%S`", value == NULL ? "no" : "a", name),
                PyUnicode_FromString(value == NULL ? "one" : "none"));
        }
        u->next++;
        return 0;
    }
    if (field->code != FJ_STATIC) {
        return walk(u, value);
    }
    u->next++;
    int same = equal(field->aux, value);
    return same > 0    ? 0
           : same == 0 ? raise_static_differs(u, node, name, value, field->aux)
                       : -1;
}

static int
walk_dict(FlattenUpTo *u, const FjNode *node, PyObject *dict)
{
    PyObject *keys = node->aux;
    int same = 1;
    if (node->code == FJ_DEFAULT_DICT) {
        const FjNode *expected = u->next++;
        PyObject *factory = PyObject_GetAttrString(dict, "default_factory");
        same = factory == NULL ? -1 : equal(factory, expected->aux);
        if (same == 0) {
            same = raise_value_differs(u, node, "default_factory=", factory,
                                       "default_factory=", expected->aux);
        }
        Py_XDECREF(factory);
    }
    else if (node->code == FJ_ORDERED_DICT) {
        same = has_keys_in_order(node, dict);
    }
    if (same < 0) {
        return -1;
    }
    if (same == 0 || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) {
        return raise_keys_differ(u, node, dict);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *value = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(keys, i));
        if (value == NULL) {
            return PyErr_Occurred() ? -1 : raise_keys_differ(u, node, dict);
        }
        Py_INCREF(value);
        int result = u->next->code == FJ_STATIC
                         ? walk_field(u, node, PyTuple_GET_ITEM(keys, i), value)
                         : walk(u, value);
        Py_DECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

/* Walks the value of a held field. */
static int
walk_held(FlattenUpTo *u, PyObject *value)
{
    const FjNode *node = u->next++;
    return PyDict_CheckExact(value) ? walk_dict(u, node, value)
                                    : raise_type_differs(u, node, value);
}

static int
walk_fields(FlattenUpTo *u, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    if (node->code == FJ_MODULE) {
        int wrapper = fj_fields_is_wrapper(object, kind);
        if (wrapper < 0) {
            return -1;
        }
        if (wrapper != ((node->flags & FJ_NODE_WRAPPER) != 0)) {
            return raise_other_attributes(u, node);
        }
    }
    for (uint32_t i = 0; i < node->arity; i++) {
        PyObject *name = PyTuple_GET_ITEM(kind->names, i), *value = NULL;
        if (node->code == FJ_OBJECT) {
            value = fj_fields_getattr(object, kind, i);
            if (value == NULL) {
                return -1;
            }
        }
        else if (fj_fields_get(object, kind, i, fj_registry_missing(u->structure->registry),
                               &value) < 0) {
            return -1;
        }
        int result = node->code == FJ_OBJECT && kind->held[i]
                         ? walk_held(u, value)
                         : walk_field(u, node, name, value);
        Py_XDECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

static int
walk_custom(FlattenUpTo *u, const FjNode *node, PyObject *object)
{
    PyObject *expected = PyTuple_GET_ITEM(node->aux, 0), *children = NULL, *aux = NULL;
    PyObject *items = NULL;
    int result = -1;
    PyObject *parts = fj_registry_flatten(u->structure->registry, object, &children, &aux);
    if (parts == NULL || (items = fj_tuple_of(children)) == NULL) {
        goto done;
    }
    int same = equal(expected, aux);
    if (same < 0) {
        goto done;
    }
    if (!same) {
        raise_value_differs(u, node, "aux data ", aux, "", expected);
    }
    else if (PyTuple_GET_SIZE(items) != node->arity) {
        raise_difference(u, node,
                         PyUnicode_FromFormat("%zd children", PyTuple_GET_SIZE(items)),
                         PyUnicode_FromFormat("%u", (unsigned)node->arity));
    }
    else {
        result = walk_items(u, node, items);
    }
done:
    Py_XDECREF(items);
    Py_XDECREF(parts);
    return result;
}

/* Whether an instance of an FJ_DESCRIBED type has the attributes of the node, and tells the
 * same of each.  1, 0, or -1 with an error. */
static int
is_described_alike(FlattenUpTo *u, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_registry_kind(u->structure->registry, object), *described = NULL;
    int result = kind == NULL ? -1
                 : kind->code != FJ_DESCRIBED
                     ? 1
                     : fj_node_kind_described(kind, object, &described);
    if (kind != NULL && kind->code == FJ_DESCRIBED && result == 0) {
        result = described == fj_node_kind(node);
    }
    Py_XDECREF(described);
    Py_XDECREF(kind);
    return result;
}

static int
walk_node(FlattenUpTo *u, const FjNode *node, PyObject *object)
{
    switch (node->code) {
    case FJ_TUPLE:
        return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == node->arity
                   ? walk_items(u, node, object)
                   : raise_type_differs(u, node, object);
    case FJ_LIST:
        return PyList_CheckExact(object) && PyList_GET_SIZE(object) == node->arity
                   ? walk_items(u, node, object)
                   : raise_type_differs(u, node, object);
    default:
        break;
    }
    if (Py_TYPE(object) != fj_structure_info(u->structure, node)->type) {
        return raise_type_differs(u, node, object);
    }
    switch (node->code) {
    case FJ_NAMEDTUPLE:
        return PyTuple_GET_SIZE(object) == node->arity ? walk_items(u, node, object)
                                                       : raise_type_differs(u, node, object);
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        return walk_dict(u, node, object);
    case FJ_MODULE: {
        int alike = is_described_alike(u, node, object);
        return alike > 0    ? walk_fields(u, node, object)
               : alike == 0 ? raise_other_attributes(u, node)
                            : -1;
    }
    case FJ_OBJECT:
        return walk_fields(u, node, object);
    default:
        return walk_custom(u, node, object);
    }
}

/* The caller holds `object`. */
static int
walk(FlattenUpTo *u, PyObject *object)
{
    const FjNode *node = u->next++;
    switch (node->code) {
    case FJ_ARRAY:
        return fj_leafbuf_push(u->leaves, object);
    case FJ_NONE:
        return object == Py_None ? 0 : raise_type_differs(u, node, object);
    default:
        break;
    }
    if (Py_EnterRecursiveCall(" while flattening a pytree")) {
        return -1;
    }
    int result = walk_node(u, node, object);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name, const char *model,
                 FjLeafBuf *leaves)
{
    FlattenUpTo u = {.structure = structure,
                     .next = structure->nodes,
                     .leaves = leaves,
                     .name = name,
                     .model = model};
    return walk(&u, tree);
}
