/* The Python type Registry: a hash table from the address of a type to its NodeKind.
 *
 * A NodeKind refers to its type weakly.  Adding the kind of a new type removes the kinds of
 * dead types from the table.
 *
 * Python code can run in `classify` (fj_registry_kind), `is_array` (fj_registry_is_array) and
 * finalizers.  fj_registry_cached_kind runs none: the match of a call depends on this. */
#include "structure/registry.h"

#include <structmember.h>

#include "base/hash.h"
#include "structure/fields.h"

static Py_hash_t
hash_type(const PyTypeObject *type)
{
    return (Py_hash_t)fj_hash_address(type);
}

/* The address isn't enough: it can be that of a dead class. */
static inline int
is_kind_of(const FjNodeKind *kind, const PyTypeObject *type)
{
    return kind->type == type && fj_compat_weakref_is(kind->weak, type);
}

static int
kind_has_type(PyObject *value, const void *probe)
{
    return is_kind_of((FjNodeKind *)value, (const PyTypeObject *)probe);
}

/* Borrowed, or NULL.  The caller has locked the Registry. */
static FjNodeKind *
find_kind(FjRegistry *types, PyTypeObject *type)
{
    PyObject *kind;
    if (types->recent != NULL && is_kind_of(types->recent, type)) {
        return types->recent;
    }
    if (fj_table_find(&types->kinds, hash_type(type), kind_has_type, type, &kind) <= 0) {
        return NULL;
    }
    Py_DECREF(kind); /* the table holds it */
    types->recent = (FjNodeKind *)kind;
    return types->recent;
}

FjNodeKind *
fj_registry_cached_kind(FjRegistry *registry, PyTypeObject *type)
{
    FjNodeKind *kind;
    FJ_LOCKED(registry->types, kind = find_kind(registry->types, type));
    return kind; /* stays in the table while the type lives */
}

int
fj_registry_is_by_identity(const FjRegistry *registry, PyTypeObject *type)
{
    PyObject *types = registry->by_identity;
    int found = 0;
    for (Py_ssize_t i = 0; types != NULL && i < PyTuple_GET_SIZE(types) && !found; i++) {
        found = PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(types, i));
    }
    return found;
}

/* (P) */
static void
drop_dead_kinds(FjRegistry *types)
{
    size_t position = 0;
    PyObject *value;
    while ((value = fj_table_next(&types->kinds, &position)) != NULL) {
        const FjNodeKind *kind = (FjNodeKind *)value;
        if (!is_kind_of(kind, kind->type)) {
            types->recent = NULL;
            fj_table_remove(&types->kinds, hash_type(kind->type), value);
        }
    }
}

/* (P) Adds a kind.  If the table has one for this type, `*kind` (owned) becomes that. */
static int
add_kind(FjRegistry *types, PyTypeObject *type, FjNodeKind **kind)
{
    drop_dead_kinds(types);
    FjNodeKind *existing = find_kind(types, type);
    if (existing != NULL) {
        Py_INCREF(existing);
        Py_SETREF(*kind, existing);
        return 0;
    }
    (*kind)->weak = PyWeakref_NewRef((PyObject *)type, NULL);
    return (*kind)->weak == NULL
               ? -1
               : fj_table_add(&types->kinds, hash_type(type), (PyObject *)*kind);
}

/* (P) Calls `classify` and adds the kind to the table.  Returns a new reference. */
static FjNodeKind *
classify_type(FjRegistry *registry, PyObject *object)
{
    PyObject *answer = NULL;
    /* Hold the type: classify() can change the instance's class. */
    PyTypeObject *type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object));
    FjNodeKind *kind = fj_node_kind_new(registry->state->kind, type);
    if (kind == NULL) {
        Py_DECREF(type);
        return NULL;
    }

    PyObject *arguments[] = {(PyObject *)type, object};
    answer = PyObject_Vectorcall(registry->classify, arguments, 2, NULL);
    if (answer == NULL || fj_node_kind_read(kind, answer) < 0) {
        goto error;
    }
    Py_CLEAR(answer);
    if (kind->code == FJ_OBJECT) {
        kind->init_version = fj_fields_are_plain(kind) ? kind->plain_version : 0;
    }
    if (Py_TYPE(object) != type) { /* the caller would use the wrong kind */
        PyErr_SetString(PyExc_RuntimeError,
                        "an object changed its class while classify() was called for it");
        goto error;
    }
    /* classify() can flatten a second instance, which adds a kind for this type. */
    int added;
    FJ_LOCKED(registry, added = add_kind(registry, type, &kind));
    if (added < 0) {
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
                        : classify_type(registry->types, object);
}

PyObject *
fj_registry_flatten(FjRegistry *registry, PyObject *object, PyObject **children,
                    PyObject **aux)
{
    FjNodeKind *kind = fj_registry_cached_kind(registry, Py_TYPE(object));
    PyObject *function = kind != NULL && kind->flatten != NULL
                             ? kind->flatten
                             : registry->types->flatten_one_level;
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
    return fj_steal_truth(PyObject_CallOneArg(registry->types->is_array, object));
}

/* 0, or -1 with TypeError if an item of `types`, which can be NULL, isn't a type or, if
 * `keyed`, a pair of a type and its key. */
static int
check_types(PyObject *types, int keyed)
{
    for (Py_ssize_t i = 0; types != NULL && i < PyTuple_GET_SIZE(types); i++) {
        PyObject *item = PyTuple_GET_ITEM(types, i);
        if (keyed) {
            int is_pair = PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 2;
            item = is_pair ? PyTuple_GET_ITEM(item, 0) : Py_None;
        }
        if (!PyType_Check(item)) {
            return fj_raise(PyExc_TypeError, keyed
                                                 ? "keyed must be pairs of a type and its key"
                                                 : "`traced` and `by_identity` must be types");
        }
    }
    return 0;
}

static PyObject *
registry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {
        "array_type",        "classify", "is_array", "flatten_one_level",
        "flatten_with_keys", "missing",  "messages", NULL};
    PyObject *array_type, *classify, *is_array, *flatten_one_level, *flatten_with_keys,
        *missing, *messages;
    if (PyTuple_GET_SIZE(args) > 0) {
        return PyErr_Format(PyExc_TypeError, "Registry takes no positional arguments");
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOOOO:Registry", keywords, &PyType_Type,
                                     &array_type, &classify, &is_array, &flatten_one_level,
                                     &flatten_with_keys, &missing, &messages)) {
        return NULL;
    }
    FjRegistry *self = (FjRegistry *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->types = self;
    self->state = fj_state_of(type);
    self->array_type = (PyTypeObject *)Py_NewRef(array_type);
    self->classify = Py_NewRef(classify);
    self->is_array = Py_NewRef(is_array);
    self->flatten_one_level = Py_NewRef(flatten_one_level);
    self->flatten_with_keys = Py_NewRef(flatten_with_keys);
    self->missing = Py_NewRef(missing);
    self->messages = Py_NewRef(messages);
    return (PyObject *)self;
}

static PyObject *
registry_with_policy(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"traced", "keyed", "by_identity", "traced_in", NULL};
    FjRegistry *types = ((FjRegistry *)op)->types;
    PyObject *traced = NULL, *keyed = NULL, *by_identity = NULL, *traced_in = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$O!O!O!O!:with_policy", keywords,
                                     &PyTuple_Type, &traced, &PyTuple_Type, &keyed,
                                     &PyTuple_Type, &by_identity, &PyTuple_Type, &traced_in) ||
        check_types(traced, 0) < 0 || check_types(keyed, 1) < 0 ||
        check_types(by_identity, 0) < 0 || check_types(traced_in, 0) < 0) {
        return NULL;
    }
    FjRegistry *self = (FjRegistry *)Py_TYPE(op)->tp_alloc(Py_TYPE(op), 0);
    if (self != NULL) {
        self->types = (FjRegistry *)Py_NewRef((PyObject *)types);
        self->state = types->state;
        self->array_type = (PyTypeObject *)Py_NewRef((PyObject *)types->array_type);
        self->traced = Py_XNewRef(traced);
        self->traced_in = Py_XNewRef(traced_in);
        self->keyed = Py_XNewRef(keyed);
        self->by_identity = Py_XNewRef(by_identity);
    }
    return (PyObject *)self;
}

/* Keeps the callables and `missing`, because finalizers can still use the Registry.  Other
 * objects break the cycles through them. */
static int
registry_clear(PyObject *op)
{
    FjRegistry *self = (FjRegistry *)op;
    self->recent = NULL;
    fj_table_clear(&self->kinds);
    return 0;
}

#define REGISTRY_REFERENCES(WHAT)                                                             \
    if (self->types != self) {                                                                \
        WHAT(self->types);                                                                    \
    }                                                                                         \
    WHAT(self->array_type);                                                                   \
    WHAT(self->traced);                                                                       \
    WHAT(self->traced_in);                                                                    \
    WHAT(self->keyed);                                                                        \
    WHAT(self->by_identity);                                                                  \
    WHAT(self->classify);                                                                     \
    WHAT(self->is_array);                                                                     \
    WHAT(self->flatten_one_level);                                                            \
    WHAT(self->flatten_with_keys);                                                            \
    WHAT(self->missing);                                                                      \
    WHAT(self->messages);

FJ_GC_TYPE(registry, FjRegistry, REGISTRY_REFERENCES,
           fj_table_traverse(&self->kinds, visit, arg), (void)registry_clear(op), (void)0)

static PyObject *
registry_kind(PyObject *op, PyObject *object)
{
    FjNodeKind *kind = fj_registry_kind((FjRegistry *)op, object);
    if (kind == NULL) {
        return NULL;
    }
    const char *name = fj_code_info[fj_registry_code((FjRegistry *)op, kind)].name;
    Py_DECREF(kind);
    return PyUnicode_FromString(name);
}

static PyMethodDef registry_methods[] = {
    FJ_METHOD("kind", registry_kind, METH_O, "($self, object, /)",
              "Returns the name of the kind of an object's type."),
    FJ_METHOD("with_policy", registry_with_policy, METH_VARARGS | METH_KEYWORDS,
              "($self, /, *, traced=(), keyed=(), by_identity=(), traced_in=())",
              "Returns a Registry with this policy that shares the kinds of this one\n"
              "(registry.h)."),
    {NULL, NULL, 0, NULL},
};

static PyObject *
registry_get_missing(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(fj_registry_missing((FjRegistry *)op));
}

static int
registry_set_missing(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL) {
        return fj_raise(PyExc_AttributeError, "`missing` cannot be deleted");
    }
    FjRegistry *types = ((FjRegistry *)op)->types;
    PyObject *before = types->missing;
    FJ_STORE_POINTER(types->missing, Py_NewRef(value));
    if (!FJ_FREE_THREADED) { /* without a GIL, a walk might be borrowing it */
        Py_DECREF(before);
    }
    return 0;
}

static PyGetSetDef registry_getset[] = {
    {"missing", registry_get_missing, registry_set_missing, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef registry_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjRegistry, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(registry_doc, "Registry(*, array_type, classify, is_array, flatten_one_level, "
                           "flatten_with_keys, missing, messages)\n--\n\n"
                           "The kind of each type. Calls `classify(type, instance)` once per "
                           "type; node_kind.c reads\n"
                           "the result.");

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

FJ_SPEC(fj_registry_spec, "filterjit._core.Registry", sizeof(FjRegistry), registry_slots, 0);
