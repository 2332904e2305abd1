/* The Python types NodeKind and Registry.
 *
 * Layout: a hash table from the address of a type to its NodeKind.  A NodeKind holds its type
 * by a weak reference, whose callback removes the NodeKind from the table, so the table never
 * holds the address of a type that has died.
 *
 * Python code can run in `classify` (fj_registry_kind), in `is_array` (fj_registry_is_array)
 * and, by way of finalizers, wherever a reference is dropped.  fj_registry_cached_kind runs no
 * Python code, which the match of a call depends on.
 */
#include "structure/registry.h"

#include <structmember.h>

#include "base/hash.h"

const char *const fj_node_kind_names[FJ_KIND_COUNT] = {
    [FJ_ARRAY] = "array",
    [FJ_PER_INSTANCE] = "per_instance",
    [FJ_STATIC] = "static",
    [FJ_NONE] = "none",
    [FJ_TUPLE] = "tuple",
    [FJ_LIST] = "list",
    [FJ_DICT] = "dict",
    [FJ_ORDERED_DICT] = "ordered_dict",
    [FJ_DEFAULT_DICT] = "default_dict",
    [FJ_NAMEDTUPLE] = "namedtuple",
    [FJ_MODULE] = "module",
    [FJ_DATACLASS] = "dataclass",
    [FJ_CUSTOM] = "custom",
};

/* ---- NodeKind ---- */

static int
kind_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjNodeKind *self = (FjNodeKind *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->weak);
    Py_VISIT(self->names);
    Py_VISIT(self->key);
    return 0;
}

static int
kind_clear(PyObject *op)
{
    FjNodeKind *self = (FjNodeKind *)op;
    Py_CLEAR(self->weak);
    Py_CLEAR(self->key);
    /* `names` is kept for Structures in the same reference cycle, which may still be read. */
    return 0;
}

static void
kind_dealloc(PyObject *op)
{
    FjNodeKind *self = (FjNodeKind *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    kind_clear(op);
    Py_CLEAR(self->names);
    PyMem_Free(self->places);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyType_Slot kind_slots[] = {
    {Py_tp_doc, "The kind of a type: how its instances are flattened. Made by Registry."},
    {Py_tp_traverse, kind_traverse},
    {Py_tp_clear, kind_clear},
    {Py_tp_dealloc, kind_dealloc},
    {0, NULL},
};

PyType_Spec fj_node_kind_spec = {
    .name = "filterjit._core.NodeKind",
    .basicsize = sizeof(FjNodeKind),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = kind_slots,
};

/* The concatenation of `count` tuples of str, with all items interned; a new tuple. */
static PyObject *
join_names(PyObject *const *groups, Py_ssize_t count)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t g = 0; g < count; g++) {
        total += PyTuple_GET_SIZE(groups[g]);
    }
    PyObject *names = PyTuple_New(total);
    if (names == NULL) {
        return NULL;
    }
    Py_ssize_t k = 0;
    for (Py_ssize_t g = 0; g < count; g++) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(groups[g]); i++) {
            PyObject *name = PyTuple_GET_ITEM(groups[g], i);
            if (!PyUnicode_CheckExact(name)) {
                Py_DECREF(names); /* before the collection that an exception can start */
                PyErr_SetString(PyExc_TypeError, "a field name must be a str");
                return NULL;
            }
            Py_INCREF(name);
            PyUnicode_InternInPlace(&name);
            PyTuple_SET_ITEM(names, k++, name);
        }
    }
    return names;
}

/* Reads the details of a module or a dataclass: (dynamic, static, wrapper).  0, or -1 with an
 * error. */
static int
read_fields(FjNodeKind *kind, PyObject *answer)
{
    PyObject *groups[3] = {NULL, NULL, NULL}, *key;
    if (!PyArg_ParseTuple(answer,
                          "sOO!O!O!;a kind with fields is (name, key, dynamic, static, "
                          "wrapper)",
                          &(const char *){NULL}, &key, &PyTuple_Type, &groups[0],
                          &PyTuple_Type, &groups[1], &PyTuple_Type, &groups[2])) {
        return -1;
    }
    if (kind->code == FJ_DATACLASS && PyTuple_GET_SIZE(groups[2]) > 0) {
        PyErr_SetString(PyExc_TypeError, "a dataclass has no wrapper names");
        return -1;
    }
    kind->names = join_names(groups, 3);
    if (kind->names == NULL) {
        return -1;
    }
    kind->dynamic = PyTuple_GET_SIZE(groups[0]);
    kind->statics = PyTuple_GET_SIZE(groups[1]);
    kind->wrapper = PyTuple_GET_SIZE(groups[2]);
    Py_ssize_t total = PyTuple_GET_SIZE(kind->names);
    kind->places = PyMem_New(Py_ssize_t, total + 1);
    if (kind->places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < total; i++) {
        kind->places[i] = -1;
    }
    return 0;
}

/* Reads the result of `classify`.  0, or -1 with an error. */
static int
read_answer(FjNodeKind *kind, PyObject *answer)
{
    PyObject *name = NULL;
    if (!PyTuple_Check(answer) || PyTuple_GET_SIZE(answer) < 1 ||
        !PyUnicode_Check(name = PyTuple_GET_ITEM(answer, 0))) {
        PyErr_SetString(PyExc_TypeError, "classify() must return (name, key, details...)");
        return -1;
    }
    int code = 0;
    while (code < FJ_KIND_COUNT &&
           PyUnicode_CompareWithASCIIString(name, fj_node_kind_names[code]) != 0) {
        code++;
    }
    if (code == FJ_KIND_COUNT) {
        PyErr_Format(PyExc_ValueError, "classify() returned an unknown kind: %R", name);
        return -1;
    }
    kind->code = (FjKindCode)code;
    if (PyTuple_GET_SIZE(answer) > 1 && PyTuple_GET_ITEM(answer, 1) != Py_None) {
        kind->key = Py_NewRef(PyTuple_GET_ITEM(answer, 1));
    }
    if (code == FJ_MODULE || code == FJ_DATACLASS) {
        return read_fields(kind, answer);
    }
    if (code == FJ_NAMEDTUPLE && PyTuple_GET_SIZE(answer) > 2) {
        kind->fill_directly = PyObject_IsTrue(PyTuple_GET_ITEM(answer, 2));
        return kind->fill_directly < 0 ? -1 : 0;
    }
    return 0;
}

/* ---- Registry ---- */

static Py_hash_t
hash_type(const PyTypeObject *type)
{
    return (Py_hash_t)fj_hash_address(type);
}

static int
kind_has_type(PyObject *value, const void *probe)
{
    return ((FjNodeKind *)value)->type == (const PyTypeObject *)probe;
}

static int
kind_has_weak(PyObject *value, const void *probe)
{
    return ((FjNodeKind *)value)->weak == (const PyObject *)probe;
}

FjNodeKind *
fj_registry_cached_kind(FjRegistry *registry, PyTypeObject *type)
{
    PyObject *kind;
    if (registry->recent != NULL && registry->recent->type == type) {
        return registry->recent;
    }
    if (fj_table_find(&registry->kinds, hash_type(type), kind_has_type, type, &kind) <= 0) {
        return NULL;
    }
    Py_DECREF(kind); /* the table holds it */
    registry->recent = (FjNodeKind *)kind;
    return registry->recent;
}

/* (P) Calls `classify`, and adds the kind to the table.  A new reference. */
static FjNodeKind *
classify_type(FjRegistry *registry, PyObject *object)
{
    PyObject *answer = NULL;
    FjNodeKind *kind = PyObject_GC_New(FjNodeKind, registry->state->kind);
    if (kind == NULL) {
        return NULL;
    }
    /* A new reference, since classify() can give the instance another class. */
    PyTypeObject *type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object));
    kind->code = FJ_STATIC;
    kind->type = type;
    kind->weak = kind->names = kind->key = NULL;
    kind->dynamic = kind->statics = kind->wrapper = 0;
    kind->fill_directly = 0;
    kind->places = NULL;
    kind->direct_version = 0;
    kind->placed = kind->in_order = kind->reach = 0;
    PyObject_GC_Track((PyObject *)kind);

    PyObject *arguments[] = {(PyObject *)type, object};
    answer = PyObject_Vectorcall(registry->classify, arguments, 2, NULL);
    if (answer == NULL || read_answer(kind, answer) < 0) {
        goto error;
    }
    Py_CLEAR(answer);
    if (Py_TYPE(object) != type) { /* the caller would flatten it by the wrong kind */
        PyErr_SetString(PyExc_RuntimeError,
                        "an object changed its class while classify() was called for it");
        goto error;
    }
    /* classify() may have flattened another instance, which added a kind for this type. */
    FjNodeKind *existing = fj_registry_cached_kind(registry, type);
    if (existing != NULL) {
        Py_INCREF(existing);
        Py_DECREF(kind);
        Py_DECREF(type);
        return existing;
    }
    kind->weak = PyWeakref_NewRef((PyObject *)type, registry->forget);
    if (kind->weak == NULL ||
        fj_table_add(&registry->kinds, hash_type(type), (PyObject *)kind) < 0) {
        goto error;
    }
    Py_DECREF(type);
    return kind;

error:
    Py_XDECREF(answer);
    Py_DECREF(kind);
    Py_DECREF(type);
    return NULL;
}

FjNodeKind *
fj_registry_kind(FjRegistry *registry, PyObject *object)
{
    FjNodeKind *kind = fj_registry_cached_kind(registry, Py_TYPE(object));
    return kind != NULL ? (FjNodeKind *)Py_NewRef((PyObject *)kind)
                        : classify_type(registry, object);
}

int
fj_registry_is_array(FjRegistry *registry, PyObject *object)
{
    return fj_take_truth(PyObject_CallOneArg(registry->is_array, object));
}

/* (P) The callback of the weak references: removes the kind of a type that has died. */
static PyObject *
forget_kind(PyObject *self_ref, PyObject *weak)
{
    PyObject *op = fj_compat_weakref_get(self_ref);
    if (op == NULL) {
        Py_RETURN_NONE;
    }
    FjRegistry *self = (FjRegistry *)op;
    size_t position = 0;
    PyObject *value;
    while ((value = fj_table_next(&self->kinds, &position)) != NULL) {
        if (kind_has_weak(value, weak)) {
            self->recent = NULL;
            fj_table_remove(&self->kinds, hash_type(((FjNodeKind *)value)->type), value);
            break;
        }
    }
    Py_DECREF(op);
    Py_RETURN_NONE;
}

static PyMethodDef forget_definition = {"forget_kind", forget_kind, METH_O, NULL};

/* Checks that all items of the tuple `keyed` are pairs of a type and a key.  0, or -1 with
 * TypeError. */
static int
check_keyed(PyObject *keyed)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyed); i++) {
        PyObject *pair = PyTuple_GET_ITEM(keyed, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 ||
            !PyType_Check(PyTuple_GET_ITEM(pair, 0))) {
            PyErr_SetString(PyExc_TypeError, "keyed must be pairs of a type and its key");
            return -1;
        }
    }
    return 0;
}

static PyObject *
registry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {
        "array_type",        "classify", "is_array", "flatten_one_level",
        "flatten_with_keys", "missing",  "keyed",    NULL};
    PyObject *array_type, *classify, *is_array, *flatten_one_level, *flatten_with_keys,
        *missing, *keyed = NULL;
    if (PyTuple_GET_SIZE(args) > 0) {
        PyErr_SetString(PyExc_TypeError, "Registry takes no positional arguments");
        return NULL;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOOO|O!:Registry", keywords,
                                     &PyType_Type, &array_type, &classify, &is_array,
                                     &flatten_one_level, &flatten_with_keys, &missing,
                                     &PyTuple_Type, &keyed) ||
        (keyed != NULL && check_keyed(keyed) < 0)) {
        return NULL;
    }
    FjRegistry *self = (FjRegistry *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->state = fj_state_of(type);
    self->array_type = (PyTypeObject *)Py_NewRef(array_type);
    self->classify = Py_NewRef(classify);
    self->is_array = Py_NewRef(is_array);
    self->flatten_one_level = Py_NewRef(flatten_one_level);
    self->flatten_with_keys = Py_NewRef(flatten_with_keys);
    self->missing = Py_NewRef(missing);
    self->keyed = Py_XNewRef(keyed);
    PyObject *self_ref = PyWeakref_NewRef((PyObject *)self, NULL);
    if (self_ref != NULL) {
        self->forget = PyCFunction_New(&forget_definition, self_ref);
        Py_DECREF(self_ref);
    }
    if (self->forget == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
registry_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjRegistry *self = (FjRegistry *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->array_type);
    Py_VISIT(self->classify);
    Py_VISIT(self->is_array);
    Py_VISIT(self->flatten_one_level);
    Py_VISIT(self->flatten_with_keys);
    Py_VISIT(self->missing);
    Py_VISIT(self->keyed);
    Py_VISIT(self->forget);
    return fj_table_traverse(&self->kinds, visit, arg);
}

static int
registry_clear(PyObject *op)
{
    FjRegistry *self = (FjRegistry *)op;
    self->recent = NULL;
    fj_table_clear(&self->kinds);
    Py_CLEAR(self->array_type);
    Py_CLEAR(self->classify);
    Py_CLEAR(self->is_array);
    Py_CLEAR(self->flatten_one_level);
    Py_CLEAR(self->flatten_with_keys);
    Py_CLEAR(self->missing);
    Py_CLEAR(self->keyed);
    Py_CLEAR(self->forget);
    return 0;
}

static void
registry_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    registry_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
registry_kind(PyObject *op, PyObject *object)
{
    FjNodeKind *kind = fj_registry_kind((FjRegistry *)op, object);
    if (kind == NULL) {
        return NULL;
    }
    const char *name = fj_node_kind_names[kind->code];
    Py_DECREF(kind);
    return PyUnicode_FromString(name);
}

static PyMethodDef registry_methods[] = {
    {"kind", registry_kind, METH_O, "kind(object) -> the name of its type's kind"},
    {NULL, NULL, 0, NULL},
};

static PyObject *
registry_get_missing(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((FjRegistry *)op)->missing);
}

static int
registry_set_missing(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "`missing` cannot be deleted");
        return -1;
    }
    Py_XSETREF(((FjRegistry *)op)->missing, Py_NewRef(value));
    return 0;
}

static PyGetSetDef registry_getset[] = {
    {"missing", registry_get_missing, registry_set_missing,
     "a field with this value counts as absent", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef registry_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjRegistry, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    registry_doc,
    "Registry(*, array_type, classify, is_array, flatten_one_level, flatten_with_keys, "
    "missing, keyed=())\n"
    "--\n\n"
    "The kind of each type. `classify(type, instance)` is called once for each type and\n"
    "returns a tuple (name, key, details...). The details of a 'module' or a 'dataclass' are\n"
    "the names of its dynamic fields, static fields and wrapper attributes; that of a\n"
    "'namedtuple' is whether it is filled directly; other kinds have none. Where a value of\n"
    "the type is static, such as in a static field, the result of the callable `key` is\n"
    "hashed and compared in its place; None, or left out, if there is none.\n"
    "`keyed` are pairs of a type and a callable: for static instances of the type, the "
    "result\n"
    "of the callable is hashed and compared instead.");

static PyType_Slot registry_slots[] = {
    {Py_tp_doc, (void *)registry_doc},
    {Py_tp_new, registry_new},
    {Py_tp_traverse, registry_traverse},
    {Py_tp_clear, registry_clear},
    {Py_tp_dealloc, registry_dealloc},
    {Py_tp_methods, registry_methods},
    {Py_tp_members, registry_members},
    {Py_tp_getset, registry_getset},
    {0, NULL},
};

PyType_Spec fj_registry_spec = {
    .name = "filterjit._core.Registry",
    .basicsize = sizeof(FjRegistry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = registry_slots,
};
