/* How each kind of container is built from its children (build.c).
 *
 * Python code can run where a node is built by a call: `unflatten` of custom nodes, the class
 * of an object or of a named tuple with a __new__ of its own, defaultdict and OrderedDict (and
 * its __setitem__), the factories of an object's other attributes, and a descriptor in the
 * place of a field. Such code, and other threads meanwhile, can find the parts of a tree that
 * is being built in gc.get_objects().  So a part is complete when the garbage collector sees
 * it: its children are built first, or it is hidden until it has them all (fj_hide).  Only
 * dicts, which are valid at any time, can be seen before they have all values.
 *
 * Modules are created without __init__, by object.__new__ and object.__setattr__, as Equinox
 * does in its own unflatten.
 */
#include "walk/build_walk.h"

#include "base/scratch.h"
#include "structure/fields.h"

/* Builds the children of a node as the items of a new tuple or list.  0, or -1 with an error.
 *
 * Most containers hold only leaves, and nothing else runs while they are filled; others are
 * hidden meanwhile. */
static int
fill_items(FjBuilder *b, const FjNode *node, PyObject *container, PyObject **items)
{
    uint32_t i = 0;
    if (node->flags & FJ_NODE_LEAVES) {
        for (; i < node->arity; i++) {
            items[i] = Py_NewRef(b->arrays[i]);
        }
        b->arrays += i;
        return 0;
    }
    for (; i < node->arity; i++) {
        const FjNode *child = b->next;
        if (FJ_LIKELY(child->code == FJ_ARRAY)) {
            items[i] = Py_NewRef(*b->arrays++);
        }
        else if (child->code == FJ_STATIC) {
            items[i] = Py_NewRef(child->aux);
        }
        else {
            break;
        }
        b->next++;
    }
    if (i == node->arity) {
        return 0;
    }
    fj_hide(container);
    for (; i < node->arity; i++) {
        items[i] = fj_build_node(b);
        if (items[i] == NULL) {
            return -1;
        }
    }
    fj_show(container);
    return 0;
}

/* Builds the children of a node as the items of `container`, a new tuple or list or NULL. */
static inline PyObject *
build_items(FjBuilder *b, const FjNode *node, PyObject *container)
{
    if (container != NULL &&
        fill_items(b, node, container, PySequence_Fast_ITEMS(container)) < 0) {
        Py_CLEAR(container);
    }
    return container;
}

static void
drop_children(PyObject **children, uint32_t count)
{
    while (count > 0) {
        Py_XDECREF(children[--count]);
    }
}

/* Builds the children of a node, before the node itself: an absent one of a Module, where they
 * `are_fields`, becomes NULL.  0, or -1 with an error and no references. */
static inline int
build_children(FjBuilder *b, const FjNode *node, int are_fields, PyObject **children)
{
    for (uint32_t i = 0; i < node->arity; i++) {
        if (are_fields && FJ_UNLIKELY(b->next->code == FJ_MISSING)) {
            b->next++;
            children[i] = NULL;
        }
        else if ((children[i] = fj_build_node(b)) == NULL) {
            drop_children(children, i);
            return -1;
        }
    }
    return 0;
}

/* (P) Makes the object of a node of its children, which it steals: a new reference, or NULL
 * with an error. */
typedef PyObject *(*Make)(FjBuilder *b, const FjNode *node, PyObject **children);

/* Builds the children of a node, and then the object, by `make`, which gets room for `size`.
 */
static inline PyObject *
build_of_children(FjBuilder *b, const FjNode *node, int are_fields, Py_ssize_t size, Make make)
{
    PyObject *room[FJ_FIELDS_INLINE], *result = NULL;
    PyObject **children = fj_scratch_new(room, FJ_FIELDS_INLINE, size);
    if (children != NULL && build_children(b, node, are_fields, children) == 0) {
        result = make(b, node, children);
    }
    fj_scratch_free(children, room);
    return result;
}

static PyObject *
make_namedtuple(FjBuilder *b, const FjNode *node, PyObject **items)
{
    PyTypeObject *type = fj_structure_info(b->structure, node)->type;
    PyObject *result;
    if (!fj_node_kind(node)->fill_directly) {
        result = PyObject_Vectorcall((PyObject *)type, items, node->arity, NULL);
        drop_children(items, node->arity);
    }
    else if ((result = fj_compat_tuple_alloc(type, node->arity)) == NULL) {
        drop_children(items, node->arity);
    }
    else {
        memcpy(((PyTupleObject *)result)->ob_item, items, node->arity * sizeof(PyObject *));
    }
    return result;
}

/* Whether all values of a dict are statics, so that all trees have equal dicts there. */
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

/* A new dict to be filled.  With PLAIN_KEYS, it is a copy of a dict that the Structure holds,
 * and copying hashes no key.  It has these keys already, each with the value None, or with its
 * value if `*is_full` becomes 1. */
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

/* Sets an attribute of a wrapper in its __dict__.  0, or -1 with an error. */
static int
set_wrapper_attribute(PyObject *object, PyObject *name, PyObject *value)
{
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    int result = dict == NULL ? -1 : PyDict_SetItem(dict, name, value);
    Py_XDECREF(dict);
    return result;
}

/* Makes a Module.  No other code can see the instance yet, so all its fields are stored at
 * once.  An absent attribute of a wrapper is set to `missing`, as Equinox does, so that the
 * instance still has more attributes than fields. */
static PyObject *
make_module(FjBuilder *b, const FjNode *node, PyObject **values)
{
    FjNodeKind *kind = fj_node_kind(node);
    uint32_t fields = (uint32_t)fj_node_kind_fields(kind);
    /* object.__new__ gives the instance its array of values.  An instance that is only
     * allocated would create a dict for its attributes later. */
    PyObject *object = PyBaseObject_Type.tp_new(kind->type, b->no_arguments, NULL);
    if (FJ_UNLIKELY(object == NULL)) {
        drop_children(values, node->arity);
        return NULL;
    }
    int result = fj_fields_fill(object, kind, values, fields);
    for (uint32_t i = fields; i < node->arity; i++) {
        if (result == 0) {
            result = set_wrapper_attribute(object, PyTuple_GET_ITEM(kind->names, i),
                                           values[i] == NULL ? b->missing : values[i]);
        }
        Py_XDECREF(values[i]);
    }
    if (result < 0) {
        Py_CLEAR(object);
    }
    return object;
}

/* (P) What `factory` makes for this tree: a new reference, or NULL with an error. */
static PyObject *
make_once(FjBuilder *b, PyObject *factory)
{
    for (int i = 0; i < b->num_factories; i++) {
        if (b->factories[i] == factory) {
            return Py_NewRef(b->made[i]);
        }
    }
    PyObject *made = PyObject_CallNoArgs(factory);
    if (made != NULL && b->num_factories < FJ_BUILD_FACTORIES) {
        b->factories[b->num_factories] = factory;
        b->made[b->num_factories++] = Py_NewRef(made);
    }
    return made;
}

/* (P) Sets the fields, and what their factories make for the other attributes, in a new
 * instance; steals the `fields` first `values`, which has room for all. */
static PyObject *
fill_object(FjBuilder *b, FjNodeKind *kind, PyObject **values, uint32_t fields)
{
    uint32_t count = fields;
    PyObject *object = NULL;
    for (; count < (uint32_t)PyTuple_GET_SIZE(kind->names); count++) {
        values[count] = make_once(b, PyTuple_GET_ITEM(kind->factories, count - fields));
        if (values[count] == NULL) {
            break;
        }
    }
    if (count == (uint32_t)PyTuple_GET_SIZE(kind->names)) {
        object = PyBaseObject_Type.tp_new(kind->type, b->no_arguments, NULL);
    }
    if (object == NULL) {
        drop_children(values, count);
    }
    else if (fj_fields_fill(object, kind, values, count) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

/* (P) Builds a subclass of functools.partial from its positional arguments, its keywords and
 * its function, by functools.partial.__new__; but this would take a function that is a partial
 * apart. */
static PyObject *
build_partial(PyTypeObject *type, PyObject *const *values)
{
    PyObject *result = NULL, *arguments = NULL;
    PyObject *given = fj_tuple_of(values[0]), *keywords = given == NULL ? NULL : PyDict_New();
    if (keywords == NULL || (arguments = PyTuple_New(PyTuple_GET_SIZE(given) + 1)) == NULL) {
        goto done;
    }
    PyTuple_SET_ITEM(arguments, 0, Py_NewRef(values[2]));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        PyTuple_SET_ITEM(arguments, i + 1, Py_NewRef(PyTuple_GET_ITEM(given, i)));
    }
    if (PyDict_Update(keywords, values[1]) < 0) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Format(PyExc_TypeError,
                         "the keywords of a `%.200s` must be a mapping, not `%.200s`",
                         type->tp_name, Py_TYPE(values[1])->tp_name);
        }
        goto done;
    }
    result = PyObject_TypeCheck(values[2], type->tp_base)
                 ? PyObject_Call((PyObject *)type, arguments, keywords)
                 : type->tp_base->tp_new(type, arguments, keywords);
done:
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    Py_XDECREF(given);
    return result;
}

/* Whether an object is built by setting its attributes, without a call of its class. */
static int
is_filled(FjNodeKind *kind)
{
    return kind->build == FJ_BUILD_FILL ||
           (kind->build == FJ_BUILD_INIT && fj_fields_are_as_classified(kind));
}

static PyObject *
make_object(FjBuilder *b, const FjNode *node, PyObject **values)
{
    FjNodeKind *kind = fj_node_kind(node);
    if (is_filled(kind)) {
        return fill_object(b, kind, values, node->arity);
    }
    PyObject *result = kind->build == FJ_BUILD_PARTIAL
                           ? build_partial(kind->type, values)
                           : PyObject_Vectorcall((PyObject *)kind->type, values, 0,
                                                 node->arity == 0 ? NULL : kind->names);
    drop_children(values, node->arity);
    return result;
}

static PyObject *
build_custom(FjBuilder *b, const FjNode *node)
{
    PyObject *values = build_items(b, node, PyTuple_New(node->arity));
    if (values == NULL) {
        return NULL;
    }
    PyObject *arguments[] = {PyTuple_GET_ITEM(node->aux, 0), values};
    PyObject *result = PyObject_Vectorcall(PyTuple_GET_ITEM(node->aux, 1), arguments, 2, NULL);
    Py_DECREF(values);
    return result;
}

static PyObject *
build_by_code(FjBuilder *b, const FjNode *node)
{
    switch (node->code) {
    case FJ_TUPLE:
        return build_items(b, node, PyTuple_New(node->arity));
    case FJ_LIST:
        return build_items(b, node, PyList_New(node->arity));
    case FJ_NAMEDTUPLE:
        return build_of_children(b, node, 0, node->arity, make_namedtuple);
    case FJ_MODULE:
        return build_of_children(b, node, 1, node->arity, make_module);
    case FJ_OBJECT:
        return build_of_children(b, node, 0, PyTuple_GET_SIZE(fj_node_kind(node)->names),
                                 make_object);
    case FJ_CUSTOM:
        return build_custom(b, node);
    default:
        return build_dict(b, node);
    }
}

static PyObject *
build_node_of_its_own(FjBuilder *b, const FjNode *node)
{
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

/* Builds a node with FJ_NODE_IDENTITY, to which REF nodes may refer. */
static PyObject *
build_numbered(FjBuilder *b, const FjNode *node)
{
    uint32_t number = b->next_number++;
    PyObject *result = build_node_of_its_own(b, node);
    b->numbered[number] = Py_XNewRef(result);
    return result;
}

PyObject *
fj_build_container(FjBuilder *b)
{
    const FjNode *node = b->next++;
    switch (node->code) {
    case FJ_NONE:
        return Py_NewRef(Py_None);
    case FJ_REF:
        if (b->numbered[fj_node_number(node)] == NULL) {
            PyErr_SetString(PyExc_RecursionError, "an argument contains itself");
            return NULL;
        }
        return Py_NewRef(b->numbered[fj_node_number(node)]);
    case FJ_MISSING:
        return Py_NewRef(b->missing);
    case FJ_CUSTOM:
        if (node->flags & FJ_NODE_ITSELF) {
            return Py_NewRef(fj_structure_value(node));
        }
        break;
    case FJ_TUPLE:
        if (node->aux != NULL) { /* a tuple that can never change, shared by all trees */
            b->next = fj_structure_skip(b->structure, node);
            return Py_NewRef(node->aux);
        }
        break;
    default:
        break;
    }
    return FJ_UNLIKELY(b->numbered != NULL) && (node->flags & FJ_NODE_IDENTITY)
               ? build_numbered(b, node)
               : build_node_of_its_own(b, node);
}
