/* Reads and builds objects with attributes as children: Modules, objects, and described
 * instances (kinds.h).  fields.h reads and stores the attributes.
 *
 * Modules are built without __init__, by object.__new__ and object.__setattr__, as in
 * Equinox's own unflatten.
 *
 * Python code can run in `describe`, in getattr for objects, in calling the class of an
 * object, in factories, in a descriptor with a field's name, wherever a child is built, and
 * when a reference is dropped. */
#include "structure/fields.h"
#include "walk/kinds.h"

static int
read_module(FjContents *c, PyObject *object, FjNodeKind *kind)
{
    int wrapper = fj_fields_is_wrapper(object, kind);
    Py_ssize_t count = fj_node_kind_fields(kind) + (wrapper ? kind->extra_names : 0);
    if (wrapper < 0 || fj_contents_reserve(c, count) < 0) {
        return -1;
    }
    c->code = FJ_MODULE;
    c->flags = wrapper ? FJ_NODE_WRAPPER : 0;
    c->type = Py_TYPE(object);
    c->aux = Py_NewRef((PyObject *)kind);
    c->children.trees_end = kind->dynamic;
    if (fj_fields_get_all(object, kind, count, fj_registry_missing(c->registry),
                          c->children.items) < 0) {
        c->children.count = 0;
        return -1;
    }
    return 1;
}

static int
read_object(FjContents *c, PyObject *object, FjNodeKind *kind)
{
    FjReadChildren *children = &c->children;
    if (fj_contents_reserve(c, fj_node_kind_fields(kind)) < 0) {
        return -1;
    }
    c->code = FJ_OBJECT;
    c->type = kind->type;
    c->aux = Py_NewRef((PyObject *)kind);
    children->trees_end = kind->dynamic;
    children->are_dicts = kind->dict_fields;
    c->runs_python = !fj_fields_are_plain(kind);
    for (Py_ssize_t i = 0; i < children->count; i++) {
        children->items[i] = fj_fields_getattr(object, kind, i);
        if (children->items[i] == NULL) {
            children->count = i;
            return -1;
        }
        if (fj_contents_is_dict(children, i) && !PyDict_CheckExact(children->items[i])) {
            /* Not what the class intends: its registered functions flatten this object. */
            children->count = i + 1;
            fj_contents_clear(c);
            *c = (FjContents){
                .registry = c->registry, .scratch = c->scratch, .is_new = c->is_new};
            return fj_custom_reader.read(c, object, kind);
        }
    }
    return 1;
}

static int
read_described(FjContents *c, PyObject *object, FjNodeKind *kind)
{
    FjNodeKind *described;
    if (fj_node_kind_described(kind, object, &described) < 0) {
        return -1;
    }
    if (described == NULL) {
        return fj_custom_reader.read(c, object, kind);
    }
    int result = read_module(c, object, described);
    if (result > 0 && c->flags & FJ_NODE_WRAPPER) { /* more or fewer attributes */
        result = 0;
    }
    Py_DECREF(described);
    return result;
}

/* Stores it in the __dict__. */
static int
set_wrapper_attribute(PyObject *object, PyObject *name, PyObject *value)
{
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    int result = dict == NULL ? -1 : PyDict_SetItem(dict, name, value);
    Py_XDECREF(dict);
    return result;
}

/* Creates a Module.  No other code can see the instance yet, so its fields are stored
 * together.  Like Equinox, sets absent wrapper attributes to `missing`: it stays a wrapper. */
static PyObject *
make_module(FjBuilder *b, const FjNode *node, PyObject **values)
{
    FjNodeKind *kind = fj_node_kind(node);
    uint32_t fields = (uint32_t)fj_node_kind_fields(kind);
    /* Calling object.__new__ allocates the array of values.  Without it, the instance would
     * later create a dict for its attributes. */
    PyObject *object = PyBaseObject_Type.tp_new(kind->type, b->no_arguments, NULL);
    if (FJ_UNLIKELY(object == NULL)) {
        fj_drop_children(values, node->arity);
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

static PyObject *
build_module(FjBuilder *b, const FjNode *node)
{
    return fj_build_of_children(b, node, 1, node->arity, make_module);
}

/* (P) Returns the result of `factory` for this tree. */
static PyObject *
make_once(FjBuilder *b, PyObject *factory)
{
    for (int i = 0; i < b->num_shared; i++) {
        if (b->shared[i].factory == factory) {
            return Py_NewRef(b->shared[i].made);
        }
    }
    PyObject *made = PyObject_CallNoArgs(factory);
    if (made != NULL && b->num_shared < FJ_BUILD_SHARED) {
        b->shared[b->num_shared].factory = factory;
        b->shared[b->num_shared++].made = Py_NewRef(made);
    }
    return made;
}

/* (P) Creates an instance, and sets its fields and the results of its factories.  Steals the
 * first `fields` items of `values`, which has room for all. */
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
        fj_drop_children(values, count);
    }
    else if (fj_fields_fill(object, kind, values, count) < 0) {
        Py_CLEAR(object);
    }
    return object;
}

/* (P) Builds a subclass of functools.partial from its positional arguments, keywords and
 * function.  If the function is itself a partial, calls the class, because
 * functools.partial.__new__ would unwrap it. */
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

/* True if building sets the attributes without calling the class, which for FJ_BUILD_INIT
 * hasn't changed since it was classified. */
static int
is_filled(FjNodeKind *kind)
{
    return kind->build == FJ_BUILD_FILL ||
           (kind->build == FJ_BUILD_INIT && fj_fields_are_plain(kind) &&
            kind->plain_version != 0 && kind->plain_version == kind->init_version);
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
    fj_drop_children(values, node->arity);
    return result;
}

static PyObject *
build_object(FjBuilder *b, const FjNode *node)
{
    return fj_build_of_children(b, node, 0, PyTuple_GET_SIZE(fj_node_kind(node)->names),
                                make_object);
}

const FjReader fj_module_reader = {read_module, build_module};
const FjReader fj_object_reader = {read_object, build_object};
/* Nodes of described instances are MODULE or CUSTOM. */
const FjReader fj_described_reader = {read_described, NULL};
