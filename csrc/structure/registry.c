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
#include "structure/fields.h"

#define MOST_LAYOUTS 1000 /* of a described type, before they are forgotten */

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
    [FJ_OBJECT] = "object",
    [FJ_CUSTOM] = "custom",
    [FJ_DESCRIBED] = "described",
};

/* ---- NodeKind ---- */

static int
kind_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjNodeKind *self = (FjNodeKind *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->weak);
    Py_VISIT(self->key);
    Py_VISIT(self->immutable);
    Py_VISIT(self->names);
    Py_VISIT(self->keys);
    Py_VISIT(self->makers);
    Py_VISIT(self->flatten);
    Py_VISIT(self->describe);
    Py_VISIT(self->layouts);
    return 0;
}

static int
kind_clear(PyObject *op)
{
    FjNodeKind *self = (FjNodeKind *)op;
    Py_CLEAR(self->weak);
    Py_CLEAR(self->key);
    Py_CLEAR(self->immutable);
    Py_CLEAR(self->flatten);
    Py_CLEAR(self->describe);
    Py_CLEAR(self->layouts);
    /* The others are kept for Structures in the same reference cycle, which may still be read.
     */
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
    Py_CLEAR(self->keys);
    Py_CLEAR(self->makers);
    PyMem_Free(self->places);
    PyMem_Free(self->offsets);
    PyMem_Free(self->held);
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

/* Sets the names of the fields and of the other attributes: tuples of str.  0, or -1 with an
 * error. */
static int
set_names(FjNodeKind *kind, PyObject *const *groups)
{
    kind->names = join_names(groups, 3);
    if (kind->names == NULL) {
        return -1;
    }
    kind->dynamic = PyTuple_GET_SIZE(groups[0]);
    kind->statics = PyTuple_GET_SIZE(groups[1]);
    kind->others = PyTuple_GET_SIZE(groups[2]);
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

/* Sets the keys of the fields: a tuple, or None if the keys are the names.  0, or -1 with an
 * error. */
static int
set_keys(FjNodeKind *kind, PyObject *keys)
{
    if (keys == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(keys) || PyTuple_GET_SIZE(keys) != fj_node_kind_fields(kind)) {
        PyErr_SetString(PyExc_TypeError, "the keys must be a tuple, with one for each field");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i);
        if (key != Py_None && !PyUnicode_CheckExact(key) &&
            !(PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 1)) {
            PyErr_SetString(PyExc_TypeError, "a key must be a str, a tuple of one, or None");
            return -1;
        }
    }
    kind->keys = Py_NewRef(keys);
    return 0;
}

/* Reads the details of a module: (dynamic, static, wrapper).  0, or -1 with an error. */
static int
read_module(FjNodeKind *kind, PyObject *answer)
{
    PyObject *groups[3], *key;
    return PyArg_ParseTuple(
               answer, "sOO!O!O!;a module is (name, key, dynamic, static, wrapper attributes)",
               &(const char *){NULL}, &key, &PyTuple_Type, &groups[0], &PyTuple_Type,
               &groups[1], &PyTuple_Type, &groups[2])
               ? set_names(kind, groups)
               : -1;
}

/* Reads how an object is built: (mode, dict from a name to its maker).  `*names` becomes a new
 * tuple of the names.  0, or -1 with an error. */
static int
read_build(FjNodeKind *kind, const char *mode, PyObject *makers, PyObject **names)
{
    static const char *const modes[] = {[FJ_BUILD_CALL] = "call",
                                        [FJ_BUILD_INIT] = "init",
                                        [FJ_BUILD_FILL] = "fill",
                                        [FJ_BUILD_PARTIAL] = "partial"};
    int code = 0;
    while (code <= FJ_BUILD_PARTIAL && strcmp(mode, modes[code]) != 0) {
        code++;
    }
    if (code > FJ_BUILD_PARTIAL || (code != FJ_BUILD_FILL && PyDict_GET_SIZE(makers) > 0)) {
        PyErr_Format(PyExc_ValueError, "an object cannot be built by '%s'", mode);
        return -1;
    }
    kind->build = (FjBuildMode)code;
    *names = fj_tuple_of(makers);
    PyObject *values = PyDict_Values(makers);
    kind->makers = values == NULL ? NULL : PyList_AsTuple(values);
    Py_XDECREF(values);
    return *names == NULL || kind->makers == NULL ? -1 : 0;
}

/* Reads the details of an object: (dynamic, static, keys, held, mode, makers).  0, or -1 with
 * an error. */
static int
read_object(FjNodeKind *kind, PyObject *answer)
{
    PyObject *groups[3] = {NULL}, *key, *keys, *held, *makers;
    const char *mode;
    if (!PyArg_ParseTuple(answer,
                          "sOO!O!OO!sO!;an object is (name, key, dynamic, static, keys, held, "
                          "mode, makers)",
                          &(const char *){NULL}, &key, &PyTuple_Type, &groups[0],
                          &PyTuple_Type, &groups[1], &keys, &PyTuple_Type, &held, &mode,
                          &PyDict_Type, &makers)) {
        return -1;
    }
    int result = read_build(kind, mode, makers, &groups[2]);
    if (result == 0) {
        result = set_names(kind, groups);
    }
    Py_XDECREF(groups[2]);
    if (result < 0 || set_keys(kind, keys) < 0) {
        return -1;
    }
    if (kind->build == FJ_BUILD_PARTIAL && (kind->dynamic != 2 || kind->statics != 1)) {
        PyErr_SetString(PyExc_ValueError, "a partial has two dynamic fields and a static one");
        return -1;
    }
    size_t total = (size_t)PyTuple_GET_SIZE(kind->names) + 1;
    kind->offsets = PyMem_Calloc(total, sizeof(*kind->offsets));
    kind->held = PyMem_Calloc(total, sizeof(*kind->held));
    if (kind->offsets == NULL || kind->held == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < fj_node_kind_fields(kind); i++) {
        int is_held = PySequence_Contains(held, PyTuple_GET_ITEM(kind->names, i));
        if (is_held < 0) {
            return -1;
        }
        kind->held[i] = (uint8_t)is_held;
    }
    kind->init_version = fj_fields_are_plain(kind) ? kind->plain_version : 0;
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
    PyObject *key = PyTuple_GET_SIZE(answer) > 1 ? PyTuple_GET_ITEM(answer, 1) : Py_None;
    if (PyTuple_Check(key)) {
        PyObject *immutable;
        if (!PyArg_ParseTuple(key, "OO;a key is a callable or (callable, immutable)", &key,
                              &immutable)) {
            return -1;
        }
        kind->immutable = Py_NewRef(immutable);
    }
    kind->key = key == Py_None ? NULL : Py_NewRef(key);
    PyObject *detail = PyTuple_GET_SIZE(answer) > 2 ? PyTuple_GET_ITEM(answer, 2) : NULL;
    switch (code) {
    case FJ_MODULE:
        return read_module(kind, answer);
    case FJ_OBJECT:
        return read_object(kind, answer);
    case FJ_NAMEDTUPLE:
        kind->fill_directly = detail == NULL ? 0 : PyObject_IsTrue(detail);
        return kind->fill_directly < 0 ? -1 : 0;
    case FJ_CUSTOM:
        kind->flatten = detail == Py_None ? NULL : Py_XNewRef(detail);
        return 0;
    case FJ_DESCRIBED:
        if (detail == NULL) {
            PyErr_SetString(PyExc_TypeError, "a described type is (name, key, describe)");
            return -1;
        }
        kind->describe = Py_NewRef(detail);
        kind->layouts = PyDict_New();
        return kind->layouts == NULL ? -1 : 0;
    default:
        return 0;
    }
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

/* A new kind of the type, as which nothing has been read yet. */
static FjNodeKind *
new_kind(PyTypeObject *kinds, PyTypeObject *type)
{
    FjNodeKind *kind = PyObject_GC_New(FjNodeKind, kinds);
    if (kind != NULL) {
        memset((char *)kind + sizeof(PyObject), 0, sizeof(FjNodeKind) - sizeof(PyObject));
        kind->code = FJ_STATIC;
        kind->type = type;
        PyObject_GC_Track((PyObject *)kind);
    }
    return kind;
}

/* (P) Calls `classify`, and adds the kind to the table.  A new reference. */
static FjNodeKind *
classify_type(FjRegistry *registry, PyObject *object)
{
    PyObject *answer = NULL;
    /* A new reference, since classify() can give the instance another class. */
    PyTypeObject *type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object));
    FjNodeKind *kind = new_kind(registry->state->kind, type);
    if (kind == NULL) {
        Py_DECREF(type);
        return NULL;
    }

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

/* A new FJ_MODULE kind for what an instance has described; NULL with an error. */
static FjNodeKind *
new_described(const FjNodeKind *kind, PyObject *description)
{
    PyObject *groups[3], *keys;
    if (!fj_expect_tuple(description, "describe") ||
        !PyArg_ParseTuple(description, "O!O!O;describe() must return (dynamic, static, keys)",
                          &PyTuple_Type, &groups[0], &PyTuple_Type, &groups[1], &keys)) {
        return NULL;
    }
    FjNodeKind *described = new_kind(Py_TYPE(kind), kind->type);
    groups[2] = PyTuple_New(0);
    if (described != NULL) {
        described->code = FJ_MODULE;
        described->weak = Py_NewRef(kind->weak);
        if (groups[2] == NULL || set_names(described, groups) < 0 ||
            set_keys(described, keys) < 0) {
            Py_CLEAR(described);
        }
    }
    Py_XDECREF(groups[2]);
    return described;
}

int
fj_registry_described_kind(FjNodeKind *kind, PyObject *object, FjNodeKind **described)
{
    *described = NULL;
    if (kind->describe == NULL) { /* the garbage collector has cleared the kind */
        return 0;
    }
    PyObject *description = PyObject_CallOneArg(kind->describe, object);
    if (description == NULL) {
        return -1;
    }
    if (description == Py_None) {
        Py_DECREF(description);
        return 0;
    }
    if (PyDict_GET_SIZE(kind->layouts) >= MOST_LAYOUTS) {
        PyDict_Clear(kind->layouts); /* the next trees do not equal the earlier ones: a miss */
    }
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(kind->layouts, description));
    if (found == NULL && !PyErr_Occurred()) {
        /* A finalizer may have described another instance alike meanwhile. */
        PyObject *made = (PyObject *)new_described(kind, description);
        found = made == NULL ? NULL
                             : Py_XNewRef(PyDict_SetDefault(kind->layouts, description, made));
        Py_XDECREF(made);
    }
    Py_DECREF(description);
    *described = (FjNodeKind *)found;
    return found == NULL ? -1 : 0;
}

PyObject *
fj_registry_flatten(FjRegistry *registry, PyObject *object, PyObject **children,
                    PyObject **aux)
{
    FjNodeKind *kind = fj_registry_cached_kind(registry, Py_TYPE(object));
    PyObject *function =
        kind != NULL && kind->flatten != NULL ? kind->flatten : registry->flatten_one_level;
    Py_INCREF(function);
    PyObject *parts = PyObject_CallOneArg(function, object);
    Py_DECREF(function);
    if (parts != NULL &&
        (!fj_expect_tuple(parts, "flatten_one_level") ||
         !PyArg_ParseTuple(parts, "OO;flatten_one_level() must return (children, aux)",
                           children, aux))) {
        Py_CLEAR(parts);
    }
    return parts;
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
    "returns a tuple (name, key, details...). Where a value of the type is static, such as in "
    "a\n"
    "static field, the result of the callable `key` is hashed and compared in its place; "
    "None,\n"
    "or left out, if there is none. A pair (key, True) says besides that nothing changes "
    "what\n"
    "such a value is equal to; in the place of True may be a function that says so of a\n"
    "value. The details are, by the name of the kind:\n"
    "\n"
    "    module      dynamic, static, wrapper: the names of its dynamic fields, its static\n"
    "                fields and the attributes that a wrapper has besides\n"
    "    object      dynamic, static, keys, held, mode, makers: the names of the attributes\n"
    "                that are children or static; a key for each, or None: a str for an\n"
    "                attribute, (key,) for an item, None where a path leaves it out; the\n"
    "                names of those whose value is a dict, the items of which stand in its\n"
    "                place; 'call', 'init', 'fill' or 'partial', as FjBuildMode says; a dict\n"
    "                from the name of each attribute that 'fill' sets besides to a function\n"
    "                without arguments, which is called once a tree\n"
    "    described   describe: a function that returns (dynamic, static, keys) for an\n"
    "                instance, or None if it is flattened by its registered functions\n"
    "    namedtuple  whether it is filled directly\n"
    "    custom      the function (object) -> (children, aux data) that the type is\n"
    "                registered with, or None: flatten_one_level is called\n"
    "\n"
    "Details may be left out at the end, except those of a module or an object.\n"
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
