/* A walk of a tree side by side with a Structure whose leaves may stand for subtrees.
 *
 * It follows jax.tree_util: types are compared exactly, static fields and aux data by ==,
 * dicts by their keys, which may come in any order but in an OrderedDict.
 *
 * Python code can run in `split`, in the getattr of dataclasses, in the == of static fields,
 * aux data and keys, and in finalizers.  So each object is held while it is walked, and sizes
 * are asked again.
 */
#include "walk/flatten_up_to.h"

#include "structure/fields.h"

typedef struct {
    FjStructure *structure;
    const FjNode *next;
    FjLeafBuf *leaves;
    const char *name;
    const char *model;
} FlattenUpTo;

static int walk(FlattenUpTo *u, PyObject *object);

/* ---- the error ---- */

/* `a list of 3`; a new reference. */
static PyObject *
say(const char *type, Py_ssize_t size)
{
    return size < 0 ? PyUnicode_FromFormat("a `%s`", type)
                    : PyUnicode_FromFormat("a `%s` of %zd", type, size);
}

static PyObject *
say_node(FlattenUpTo *u, const FjNode *node)
{
    switch (node->code) {
    case FJ_NONE:
        return PyUnicode_FromString("None");
    case FJ_TUPLE:
        return say("tuple", node->arity);
    case FJ_LIST:
        return say("list", node->arity);
    default:
        return say(fj_structure_info(u->structure, node)->type->tp_name, -1);
    }
}

static PyObject *
say_object(PyObject *object)
{
    return object == Py_None            ? PyUnicode_FromString("None")
           : PyTuple_CheckExact(object) ? say("tuple", PyTuple_GET_SIZE(object))
           : PyList_CheckExact(object)  ? say("list", PyList_GET_SIZE(object))
                                        : say(Py_TYPE(object)->tp_name, -1);
}

/* Raises: what stands at `node` is another.  Steals `found` and `expected`, which may be NULL
 * with an error.  Always -1. */
static int
differ(FlattenUpTo *u, const FjNode *node, PyObject *found, PyObject *expected)
{
    PyObject *path = NULL, *where = NULL;
    if (found == NULL || expected == NULL) {
        goto done;
    }
    path = fj_structure_path(u->structure, (uint32_t)(node - u->structure->nodes));
    where = path == NULL ? NULL : fj_structure_write_path(path);
    if (where != NULL) {
        PyErr_Format(PyExc_ValueError, "%s differs from %s at %U: it has %U, where %s has %U",
                     u->name, u->model, where, found, u->model, expected);
    }
done:
    Py_XDECREF(found);
    Py_XDECREF(expected);
    Py_XDECREF(path);
    Py_XDECREF(where);
    return -1;
}

static int
differ_in_kind(FlattenUpTo *u, const FjNode *node, PyObject *object)
{
    return differ(u, node, say_object(object), say_node(u, node));
}

static int
differ_in_static(FlattenUpTo *u, const FjNode *node, PyObject *name, PyObject *value,
                 PyObject *expected)
{
    PyObject *found = PyUnicode_FromFormat("%S=%R", name, value);
    PyObject *other = found == NULL ? NULL : PyUnicode_FromFormat("%S=%R", name, expected);
    return differ(u, node, found, other);
}

/* The reprs are Python code: the second is not asked for where the first has raised. */
static int
differ_in_value(FlattenUpTo *u, const FjNode *node, const char *before, PyObject *value,
                const char *before_expected, PyObject *expected)
{
    PyObject *found = PyUnicode_FromFormat("%s%R", before, value);
    PyObject *other =
        found == NULL ? NULL : PyUnicode_FromFormat("%s%R", before_expected, expected);
    return differ(u, node, found, other);
}

/* ---- the nodes ---- */

/* As in a tuple's ==: the same object, or equal.  1, 0, -1 with an error. */
static int
equal(PyObject *a, PyObject *b)
{
    return PyObject_RichCompareBool(a, b, Py_EQ);
}

/* Children of an exact tuple or list, or of a named tuple. */
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
differ_in_keys(FlattenUpTo *u, const FjNode *node, PyObject *dict)
{
    PyObject *keys = PyDict_Keys(dict);
    PyObject *found = keys == NULL ? NULL : PyUnicode_FromFormat("the keys %R", keys);
    PyObject *expected = found == NULL ? NULL : PyUnicode_FromFormat("%R", node->aux);
    Py_XDECREF(keys);
    return differ(u, node, found, expected);
}

/* Whether an OrderedDict has its keys in the order of the Structure; 1, 0, -1 with an error.
 */
static int
has_order(const FjNode *node, PyObject *dict)
{
    PyObject *keys = PySequence_Tuple(dict);
    int same = keys == NULL ? -1 : equal(keys, node->aux);
    Py_XDECREF(keys);
    return same;
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
            same = differ_in_value(u, node, "default_factory=", factory,
                                   "default_factory=", expected->aux);
        }
        Py_XDECREF(factory);
    }
    else if (node->code == FJ_ORDERED_DICT) {
        same = has_order(node, dict);
    }
    if (same < 0) {
        return -1;
    }
    if (same == 0 || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) {
        return differ_in_keys(u, node, dict);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *value = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(keys, i));
        if (value == NULL) {
            return PyErr_Occurred() ? -1 : differ_in_keys(u, node, dict);
        }
        Py_INCREF(value);
        int result = walk(u, value);
        Py_DECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

/* A field, which is NULL where it is not there: a subtree, or a static that is to be equal. */
static int
walk_field(FlattenUpTo *u, const FjNode *node, PyObject *name, PyObject *value)
{
    const FjNode *field = u->next;
    if (field->code == FJ_MISSING || value == NULL) {
        if (field->code != FJ_MISSING || value != NULL) {
            return differ(u, node,
                          PyUnicode_FromFormat("%s `%U`", value == NULL ? "no" : "a", name),
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
    return same > 0 ? 0 : same == 0 ? differ_in_static(u, node, name, value, field->aux) : -1;
}

static int
walk_fields(FlattenUpTo *u, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    if (node->code == FJ_MODULE) {
        int wrapper = fj_fields_has_wrapper(object, kind);
        if (wrapper < 0) {
            return -1;
        }
        if (wrapper != ((node->flags & FJ_NODE_WRAPPER) != 0)) {
            return differ(
                u, node,
                PyUnicode_FromFormat("a `%s` of other attributes", kind->type->tp_name),
                say(kind->type->tp_name, -1));
        }
    }
    for (uint32_t i = 0; i < node->arity; i++) {
        PyObject *name = PyTuple_GET_ITEM(kind->names, i), *value = NULL;
        if (node->code == FJ_DATACLASS) {
            value = PyObject_GetAttr(object, name);
            if (value == NULL) {
                return -1;
            }
        }
        else if (fj_fields_get(object, kind, i, u->structure->registry->missing, &value) < 0) {
            return -1;
        }
        int result = walk_field(u, node, name, value);
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
    PyObject *parts = PyObject_CallOneArg(u->structure->registry->flatten_one_level, object);
    PyObject *expected = PyTuple_GET_ITEM(node->aux, 0), *children = NULL, *aux = NULL;
    PyObject *items = NULL;
    int result = -1;
    if (parts == NULL || !fj_expect_tuple(parts, "flatten_one_level") ||
        !PyArg_ParseTuple(parts, "OO;flatten_one_level() must return (children, aux)",
                          &children, &aux)) {
        goto done;
    }
    items = PySequence_Tuple(children);
    if (items == NULL) {
        goto done;
    }
    int same = equal(expected, aux);
    if (same < 0) {
        goto done;
    }
    if (!same) {
        differ_in_value(u, node, "aux data ", aux, "", expected);
    }
    else if (PyTuple_GET_SIZE(items) != node->arity) {
        differ(u, node, PyUnicode_FromFormat("%zd children", PyTuple_GET_SIZE(items)),
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

static int
walk_node(FlattenUpTo *u, const FjNode *node, PyObject *object)
{
    switch (node->code) {
    case FJ_TUPLE:
        return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == node->arity
                   ? walk_items(u, node, object)
                   : differ_in_kind(u, node, object);
    case FJ_LIST:
        return PyList_CheckExact(object) && PyList_GET_SIZE(object) == node->arity
                   ? walk_items(u, node, object)
                   : differ_in_kind(u, node, object);
    default:
        break;
    }
    if (Py_TYPE(object) != fj_structure_info(u->structure, node)->type) {
        return differ_in_kind(u, node, object);
    }
    switch (node->code) {
    case FJ_NAMEDTUPLE:
        return PyTuple_GET_SIZE(object) == node->arity ? walk_items(u, node, object)
                                                       : differ_in_kind(u, node, object);
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        return walk_dict(u, node, object);
    case FJ_MODULE:
    case FJ_DATACLASS:
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
        return object == Py_None ? 0 : differ_in_kind(u, node, object);
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
    FlattenUpTo u = {structure, structure->nodes, leaves, name, model};
    return walk(&u, tree);
}
