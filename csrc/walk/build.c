/* Builds trees from Structures, in one pass over the nodes in their order.
 *
 * Python code can run where a node is built by a call: `unflatten` of custom nodes, the class
 * of a dataclass or of a named tuple with a __new__ of its own, defaultdict and OrderedDict
 * (and its __setitem__), and a descriptor in the place of a Module's field.
 * Until a tree is returned, only the garbage collector can find its parts; incomplete tuples
 * and lists hold NULL, as CPython's own do.
 *
 * Modules are created without __init__, by object.__new__ and object.__setattr__, as Equinox
 * does in its own unflatten.
 */
#include "walk/build.h"

#include "structure/fields.h"

typedef struct {
    FjStructure *structure;
    const FjNode *next;
    PyObject *const *arrays; /* the next array */
    PyObject *registry;
    PyObject *missing;
    PyObject *no_arguments; /* the empty tuple */
    /* For fj_build_part, where `arrays` are the leaves that have a node of their own: */
    const FjPart *part;       /* or NULL */
    PyObject *const *singles; /* the first of `arrays` */
    Py_ssize_t taken;         /* number of leaves without a node that have been built */
} Build;

static PyObject *build_container(Build *b);

/* Builds the subtree at the next node of the Structure: a new reference. */
static inline PyObject *
build_node(Build *b)
{
    const FjNode *node = b->next;
    if (FJ_LIKELY(node->code == FJ_ARRAY)) {
        b->next++;
        return Py_NewRef(*b->arrays++);
    }
    if (FJ_LIKELY(node->code == FJ_STATIC)) {
        b->next++;
        return Py_NewRef(node->aux);
    }
    return build_container(b);
}

/* Stores new references to the leaves of a node with FJ_NODE_LEAVES in `items`. */
static void
take_leaves(Build *b, PyObject **items, uint32_t count)
{
    const FjPart *part = b->part;
    if (part == NULL) {
        for (uint32_t i = 0; i < count; i++) {
            items[i] = Py_NewRef(b->arrays[i]);
        }
        b->arrays += count;
        return;
    }
    /* Often nearly all of 100,000 leaves are of other groups, so that `replace` takes their
     * places.  To increment its reference count once for each would take as long as everything
     * else here. */
    Py_ssize_t first = b->arrays - b->singles + b->taken, replaced = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (part->groups[first + i] == part->group) {
            items[i] = Py_NewRef(part->leaves[first + i]);
        }
        else {
            items[i] = part->replace;
            replaced++;
        }
    }
    fj_compat_add_references(part->replace, replaced);
    b->taken += count;
}

static PyObject *
build_list(Build *b, const FjNode *node)
{
    PyObject *list = PyList_New(node->arity);
    if (list != NULL && (node->flags & FJ_NODE_LEAVES)) {
        take_leaves(b, ((PyListObject *)list)->ob_item, node->arity);
        return list;
    }
    for (uint32_t i = 0; list != NULL && i < node->arity; i++) {
        PyObject *item = build_node(b);
        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, item);
    }
    return list;
}

/* Fills a new tuple, or a new instance of a subclass of tuple; steals it.  NULL with an
 * error. */
static PyObject *
fill_tuple(Build *b, const FjNode *node, PyObject *tuple)
{
    if (tuple != NULL && (node->flags & FJ_NODE_LEAVES)) {
        take_leaves(b, ((PyTupleObject *)tuple)->ob_item, node->arity);
        return tuple;
    }
    for (uint32_t i = 0; tuple != NULL && i < node->arity; i++) {
        PyObject *item = build_node(b);
        if (item == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *
build_namedtuple(Build *b, const FjNode *node)
{
    PyTypeObject *type = fj_structure_info(b->structure, node)->type;
    if (fj_node_kind(node)->fill_directly) {
        return fill_tuple(b, node, type->tp_alloc(type, node->arity));
    }
    PyObject *values = fill_tuple(b, node, PyTuple_New(node->arity));
    PyObject *result = values == NULL ? NULL : PyObject_CallObject((PyObject *)type, values);
    Py_XDECREF(values);
    return result;
}

/* A new dict to be filled.  If all keys are str, it already has them, each with the value
 * None: it is a copy of a dict that the Structure holds, and copying hashes no key. */
static PyObject *
new_dict(Build *b, const FjNode *node)
{
    if (!(node->flags & FJ_NODE_STR_KEYS)) {
        return PyDict_New();
    }
    FjNodeInfo *info = &b->structure->info[node - b->structure->nodes];
    if (info->cached == NULL) {
        PyObject *model = PyDict_New();
        for (Py_ssize_t i = 0; model != NULL && i < PyTuple_GET_SIZE(node->aux); i++) {
            if (PyDict_SetItem(model, PyTuple_GET_ITEM(node->aux, i), Py_None) < 0) {
                Py_CLEAR(model);
            }
        }
        Py_XSETREF(info->cached, model); /* a finalizer may have set it meanwhile */
    }
    return info->cached == NULL ? NULL : PyDict_Copy(info->cached);
}

static PyObject *
build_dict(Build *b, const FjNode *node)
{
    PyObject *type = (PyObject *)fj_structure_info(b->structure, node)->type, *dict = NULL;
    if (node->code == FJ_DICT) {
        dict = new_dict(b, node);
    }
    else if (node->code == FJ_ORDERED_DICT) {
        dict = PyObject_CallNoArgs(type);
    }
    else {
        PyObject *factory = build_node(b);
        dict = factory == NULL ? NULL : PyObject_CallOneArg(type, factory);
        Py_XDECREF(factory);
    }
    for (Py_ssize_t i = 0; dict != NULL && i < PyTuple_GET_SIZE(node->aux); i++) {
        PyObject *value = build_node(b);
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

/* Sets an attribute of a wrapper in its __dict__; steals `value`.  0, or -1 with an error. */
static int
set_wrapper_attribute(PyObject *object, PyObject *name, PyObject *value)
{
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    int result = dict == NULL ? -1 : PyDict_SetItem(dict, name, value);
    Py_XDECREF(dict);
    Py_DECREF(value);
    return result;
}

/* Calls object.__new__, which gives the instance its array of values.  An instance that is
 * only allocated would create a dict for its attributes later. */
static PyObject *
new_module(Build *b, const FjNode *node)
{
    return PyBaseObject_Type.tp_new(fj_node_kind(node)->type, b->no_arguments, NULL);
}

/* Builds a Module and sets its fields one by one: wrappers, and Modules with more fields than
 * build_module has room for. */
static PyObject *
build_module_by_field(Build *b, const FjNode *node)
{
    FjNodeKind *kind = fj_node_kind(node);
    PyObject *object = new_module(b, node);
    for (uint32_t i = 0; object != NULL && i < node->arity; i++) {
        if (b->next->code == FJ_MISSING && i < fj_node_kind_fields(kind)) {
            b->next++;
            continue;
        }
        /* An absent attribute of a wrapper is set to `missing`, as Equinox does, so that the
         * instance still has more attributes than fields. */
        PyObject *value = build_node(b);
        if (value == NULL ||
            (i < fj_node_kind_fields(kind)
                 ? fj_fields_set_fresh(object, kind, i, value)
                 : set_wrapper_attribute(object, PyTuple_GET_ITEM(kind->names, i), value)) <
                0) {
            Py_CLEAR(object);
        }
    }
    return object;
}

/* Builds the values of the fields first and the instance last.  No other code can see the
 * instance before it is complete, so all its fields are stored at once. */
static PyObject *
build_module(Build *b, const FjNode *node)
{
    PyObject *values[FJ_FIELDS_INLINE];
    uint32_t built = 0;
    if (FJ_UNLIKELY(node->arity > FJ_FIELDS_INLINE || (node->flags & FJ_NODE_WRAPPER))) {
        return build_module_by_field(b, node);
    }
    for (; built < node->arity; built++) {
        if (FJ_UNLIKELY(b->next->code == FJ_MISSING)) {
            b->next++;
            values[built] = NULL;
        }
        else if ((values[built] = build_node(b)) == NULL) {
            break;
        }
    }
    PyObject *object = built < node->arity ? NULL : new_module(b, node);
    if (FJ_UNLIKELY(object == NULL)) {
        while (built > 0) {
            Py_XDECREF(values[--built]);
        }
        return NULL;
    }
    if (fj_fields_fill_fresh(object, fj_node_kind(node), values, built) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

static PyObject *
build_dataclass(Build *b, const FjNode *node)
{
    PyObject *values = fill_tuple(b, node, PyTuple_New(node->arity));
    if (values == NULL) {
        return NULL;
    }
    PyObject *result =
        PyObject_Vectorcall((PyObject *)fj_structure_info(b->structure, node)->type,
                            ((PyTupleObject *)values)->ob_item, 0,
                            node->arity == 0 ? NULL : fj_node_kind(node)->names);
    Py_DECREF(values);
    return result;
}

static PyObject *
build_custom(Build *b, const FjNode *node)
{
    PyObject *values = fill_tuple(b, node, PyTuple_New(node->arity));
    if (values == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_CallOneArg(PyTuple_GET_ITEM(node->aux, 1), values);
    Py_DECREF(values);
    return result;
}

static PyObject *
build_by_code(Build *b, const FjNode *node)
{
    switch (node->code) {
    case FJ_TUPLE:
        return fill_tuple(b, node, PyTuple_New(node->arity));
    case FJ_LIST:
        return build_list(b, node);
    case FJ_NAMEDTUPLE:
        return build_namedtuple(b, node);
    case FJ_MODULE:
        return build_module(b, node);
    case FJ_DATACLASS:
        return build_dataclass(b, node);
    case FJ_CUSTOM:
        return build_custom(b, node);
    default:
        return build_dict(b, node);
    }
}

static PyObject *
build_container(Build *b)
{
    const FjNode *node = b->next++;
    switch (node->code) {
    case FJ_NONE:
        return Py_NewRef(Py_None);
    case FJ_MISSING:
        return Py_NewRef(b->missing);
    case FJ_TUPLE:
        if (node->aux != NULL) { /* a tuple that can never change, shared by all trees */
            b->next = fj_structure_skip(b->structure, node);
            return Py_NewRef(node->aux);
        }
        break;
    default:
        break;
    }
    if (node->flags & FJ_NODE_SHALLOW) { /* has no grandchildren: no recursion */
        return build_by_code(b, node);
    }
    if (Py_EnterRecursiveCall(" while building a pytree")) {
        return NULL;
    }
    PyObject *result = build_by_code(b, node);
    Py_LeaveRecursiveCall();
    return result;
}

static PyObject *
run_build(FjStructure *structure, PyObject *const *arrays, const FjPart *part,
          PyObject *(*build)(Build *))
{
    Build b = {.structure = structure,
               .next = structure->nodes,
               .arrays = arrays,
               .registry = (PyObject *)structure->registry,
               .missing = structure->registry->missing,
               .no_arguments = PyTuple_New(0),
               .part = part,
               .singles = arrays,
               .taken = 0};
    PyObject *result = b.no_arguments == NULL ? NULL : build(&b);
    Py_XDECREF(b.no_arguments);
    return result;
}

PyObject *
fj_build_tree(FjStructure *structure, PyObject *const *arrays)
{
    return run_build(structure, arrays, NULL, build_node);
}

PyObject *
fj_build_part(FjStructure *structure, const FjPart *part)
{
    Py_ssize_t leaf = 0, count = 0;
    PyObject **singles = PyMem_New(PyObject *, (size_t)structure->count + 1);
    if (singles == NULL) {
        return PyErr_NoMemory();
    }
    for (uint32_t i = 0; i < structure->count; i++) {
        const FjNode *node = &structure->nodes[i];
        if (node->code == FJ_ARRAY) {
            singles[count++] = fj_part_leaf(part, leaf);
        }
        leaf += fj_node_leaves(node);
    }
    PyObject *tree = run_build(structure, singles, part, build_node);
    PyMem_Free(singles);
    return tree;
}

PyObject *
fj_build_open(FjStructure *structure, PyObject *const *given)
{
    if (structure->static_leaves == NULL) {
        return fj_build_tree(structure, given);
    }
    PyObject **leaves = PyMem_New(PyObject *, (size_t)structure->all_leaves + 1);
    if (leaves == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < structure->all_leaves; i++) {
        PyObject *value = fj_structure_static_leaf(structure, i);
        leaves[i] = value != NULL ? value : *given++;
    }
    PyObject *tree = fj_build_tree(structure, leaves);
    PyMem_Free(leaves);
    return tree;
}

/* Builds the arguments of a call as a new list.  The registry stands for an argument that was
 * not given, because `missing` could have been given as one. */
static PyObject *
build_root(Build *b)
{
    const FjNode *root = b->next++;
    PyObject *list = PyList_New(root->arity);
    for (uint32_t i = 0; list != NULL && i < root->arity; i++) {
        PyObject *item;
        if (b->next->code == FJ_MISSING) {
            b->next++;
            item = Py_NewRef(b->registry);
        }
        else {
            item = build_node(b);
        }
        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, item);
    }
    return list;
}

PyObject *
fj_build_arguments(FjStructure *structure, PyObject *const *arrays)
{
    return run_build(structure, arrays, NULL, build_root);
}
