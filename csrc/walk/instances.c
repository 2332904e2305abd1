/* Reads objects with attributes as children: Modules, objects, and described instances
 * (reader.h).  fields.h reads and stores the attributes.
 *
 * Modules are built without __init__, by object.__new__ and object.__setattr__, as in
 * Equinox's own unflatten.
 *
 * Python code can run in `describe`, in getattr for objects, in calling the class of an
 * object, in factories, in a descriptor with a field's name, wherever a child is walked or
 * built, and when a reference is dropped. */
#include "walk/reader.h"

#include "base/scratch.h"
#include "structure/fields.h"

/* `value` is NULL if the field is absent. */
static int
walk_field(FjFlattener *f, const FjNodeKind *kind, Py_ssize_t i, PyObject *value)
{
    return value == NULL       ? fj_flatten_nothing(f, FJ_MISSING)
           : i < kind->dynamic ? fj_flatten_object(f, value)
                               : fj_flatten_field(f, value);
}

static int
flatten_module(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    PyObject *room[FJ_FIELDS_INLINE];
    int result = -1;
    int wrapper = fj_fields_is_wrapper(object, kind);
    if (wrapper < 0) {
        return -1;
    }
    Py_ssize_t count = fj_node_kind_fields(kind) + (wrapper ? kind->extra_names : 0);
    PyObject **values = fj_scratch_new(room, FJ_FIELDS_INLINE, count);
    if (values == NULL) {
        return -1;
    }
    Py_ssize_t index = fj_flatten_open(f, FJ_MODULE, count, Py_TYPE(object), (PyObject *)kind,
                                       wrapper ? FJ_NODE_WRAPPER : 0);
    if (index < 0 ||
        fj_fields_get_all(object, kind, count, fj_registry_missing(fj_flatten_registry(f)),
                          values) < 0) {
        goto done;
    }
    result = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (result == 0) {
            result = walk_field(f, kind, i, values[i]);
        }
        Py_XDECREF(values[i]);
    }
    if (result == 0) {
        fj_flatten_close(f, index);
    }
done:
    fj_scratch_free(values, room);
    return result;
}

/* True if all held fields are dicts, as their class intends.  1, 0, or -1 with an error. */
static int
holds_dicts(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    if (f->expected != NULL && f->expected->name == NULL) { /* flatten_fields checks them */
        return f->expected->next->code == FJ_OBJECT;
    }
    for (Py_ssize_t i = 0; i < fj_node_kind_fields(kind); i++) {
        if (kind->dict_fields[i]) {
            PyObject *value = fj_fields_getattr(object, kind, i);
            int is_dict = value != NULL && PyDict_CheckExact(value);
            Py_XDECREF(value);
            if (!is_dict) {
                return value == NULL ? -1 : 0;
            }
        }
    }
    return 1;
}

static int
flatten_fields(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    Py_ssize_t count = fj_node_kind_fields(kind);
    Py_ssize_t index = fj_flatten_open(f, FJ_OBJECT, count, kind->type, (PyObject *)kind, 0);
    if (index < 0) {
        return -1;
    }
    fj_flatten_runs_python(f, !fj_fields_are_plain(kind));
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = fj_fields_getattr(object, kind, i);
        int result = -1;
        if (value != NULL && kind->dict_fields[i]) {
            result = PyDict_CheckExact(value)
                         ? fj_flatten_dict(f, FJ_DICT, value, i >= kind->dynamic)
                         : fj_flatten_changed(f, object);
        }
        else if (value != NULL) {
            result = walk_field(f, kind, i, value);
        }
        Py_XDECREF(value);
        if (result < 0) {
            return -1;
        }
    }
    return fj_flatten_close(f, index);
}

static int
flatten_object(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    int holds = holds_dicts(f, object, kind);
    return holds < 0   ? -1
           : holds > 0 ? flatten_fields(f, object, kind)
                       : fj_custom_reader.flatten(f, object, kind);
}

static int
flatten_described(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    /* If a Module is expected, don't ask the instance for its description. */
    FjNodeKind *described = f->expected == NULL ? NULL : fj_expected_kind(f->expected);
    Py_XINCREF(described);
    if (described == NULL && fj_node_kind_described(kind, object, &described) < 0) {
        return -1;
    }
    if (described == NULL) {
        return fj_custom_reader.flatten(f, object, kind);
    }
    int is_other = fj_fields_is_wrapper(object, described); /* more or fewer attributes */
    int result = is_other < 0 ? -1
                 : is_other   ? fj_flatten_changed(f, object)
                              : flatten_module(f, object, described);
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

/* True if building sets the attributes without calling the class. */
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
    fj_drop_children(values, node->arity);
    return result;
}

static PyObject *
build_object(FjBuilder *b, const FjNode *node)
{
    return fj_build_of_children(b, node, 0, PyTuple_GET_SIZE(fj_node_kind(node)->names),
                                make_object);
}

#if FJ_FREE_THREADED

static int
compare_module(FjFlattener *f, const FjNode *node, PyObject *object)
{
    const FjNodeKind *kind = fj_node_kind(node);
    PyObject *dict = fj_fields_dict(object);
    if (dict == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int result = fj_compare_children(f, node, dict, kind->names, fj_node_kind_fields(kind));
    Py_DECREF(dict);
    return result;
}

/* Compares a held field: its value must be a dict. */
static int
compare_dict_field(FjFlattener *f, PyObject *value, int is_static)
{
    const FjNode *node = f->expected->next;
    if (!PyDict_CheckExact(value)) {
        f->expected->differs = 1;
        return -1;
    }
    int result = node->code == FJ_DICT ? fj_dict_reader.compare(f, node, value) : 0;
    return result != 0 ? result : fj_flatten_dict(f, FJ_DICT, value, is_static) < 0 ? -1 : 1;
}

static int
compare_fields(FjFlattener *f, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    int result = 1;
    f->expected->next = node + 1;
    for (Py_ssize_t i = 0; i < (Py_ssize_t)node->arity && result > 0; i++) {
        PyObject *value = fj_fields_getattr(object, kind, i);
        if (value == NULL) {
            return -1;
        }
        result = kind->dict_fields[i] ? compare_dict_field(f, value, i >= kind->dynamic)
                                      : fj_compare_held(f, &value, 1);
        Py_XDECREF(value); /* NULL if the buffer took it */
    }
    return result;
}

#endif

const FjReader fj_module_reader = {flatten_module, build_module, FJ_COMPARE(compare_module)};
const FjReader fj_object_reader = {flatten_object, build_object, FJ_COMPARE(compare_fields)};
/* Nodes of described instances are MODULE or CUSTOM. */
const FjReader fj_described_reader = {flatten_described, NULL, FJ_COMPARE(NULL)};
