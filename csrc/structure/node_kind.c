/* The Python type NodeKind: checks and stores the answers of `classify` and `describe`.
 *
 * Python code can run in `describe` (fj_node_kind_described) and in finalizers. */
#include "structure/node_kind.h"

#define MOST_DESCRIBED 1000 /* per described type, before all are dropped */

static int
kind_clear(PyObject *op)
{
    FjNodeKind *self = (FjNodeKind *)op;
    Py_CLEAR(self->weak);
    Py_CLEAR(self->key);
    Py_CLEAR(self->immutable);
    Py_CLEAR(self->contents);
    Py_CLEAR(self->flatten);
    Py_CLEAR(self->describe);
    Py_CLEAR(self->described);
    /* Keeps the rest, which Structures in the same cycle can still read. */
    return 0;
}

static void
free_arrays(FjNodeKind *self)
{
    PyMem_Free(self->places);
    PyMem_Free(self->offsets);
    PyMem_Free(self->dict_fields);
}

#define KIND_REFERENCES(WHAT)                                                                 \
    WHAT(self->weak);                                                                         \
    WHAT(self->key);                                                                          \
    WHAT(self->immutable);                                                                    \
    WHAT(self->contents);                                                                     \
    WHAT(self->names);                                                                        \
    WHAT(self->keys);                                                                         \
    WHAT(self->factories);                                                                    \
    WHAT(self->flatten);                                                                      \
    WHAT(self->describe);                                                                     \
    WHAT(self->described);

FJ_GC_TYPE(kind, FjNodeKind, KIND_REFERENCES, 0, (void)0, free_arrays(self))

static PyType_Slot kind_slots[] = {
    {Py_tp_doc, "The kind of a type: how to flatten its instances. Registry creates it."},
    {Py_tp_traverse, kind_traverse},
    {Py_tp_clear, kind_clear},
    {Py_tp_dealloc, kind_dealloc},
    {0, NULL},
};

FJ_SPEC(fj_node_kind_spec, "filterjit._core.NodeKind", sizeof(FjNodeKind), kind_slots,
        Py_TPFLAGS_DISALLOW_INSTANTIATION);

FjNodeKind *
fj_node_kind_new(PyTypeObject *kinds, PyTypeObject *type)
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

/* Joins `count` tuples of str into a new tuple and interns the items. */
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
                Py_DECREF(names); /* first: raising can start a collection */
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

/* Sets the names of the fields and of the extra attributes: three tuples of str. */
static int
set_names(FjNodeKind *kind, PyObject *const *groups)
{
    kind->names = join_names(groups, 3);
    if (kind->names == NULL) {
        return -1;
    }
    kind->dynamic = PyTuple_GET_SIZE(groups[0]);
    kind->statics = PyTuple_GET_SIZE(groups[1]);
    kind->extra_names = PyTuple_GET_SIZE(groups[2]);
    Py_ssize_t total = PyTuple_GET_SIZE(kind->names);
    kind->places = PyMem_New(Py_ssize_t, total + 1);
    kind->offsets = PyMem_Calloc((size_t)total + 1, sizeof(*kind->offsets));
    if (kind->places == NULL || kind->offsets == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < total; i++) {
        kind->places[i] = -1;
    }
    return 0;
}

/* Sets the keys of the fields: a tuple, or None if the keys are the names. */
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

/* Reads how to build an object.  `*names` becomes a new tuple of the factories' names. */
static int
read_build(FjNodeKind *kind, const char *mode, PyObject *factories, PyObject **names)
{
    static const char *const modes[] = {[FJ_BUILD_CALL] = "call",
                                        [FJ_BUILD_INIT] = "init",
                                        [FJ_BUILD_FILL] = "fill",
                                        [FJ_BUILD_PARTIAL] = "partial"};
    int code = 0;
    while (code <= FJ_BUILD_PARTIAL && strcmp(mode, modes[code]) != 0) {
        code++;
    }
    if (code > FJ_BUILD_PARTIAL || (code != FJ_BUILD_FILL && PyDict_GET_SIZE(factories) > 0)) {
        PyErr_Format(PyExc_ValueError, "an object cannot be built by '%s'", mode);
        return -1;
    }
    kind->build = (FjBuildMode)code;
    *names = fj_tuple_of(factories);
    PyObject *values = PyDict_Values(factories);
    kind->factories = values == NULL ? NULL : PyList_AsTuple(values);
    Py_XDECREF(values);
    return *names == NULL || kind->factories == NULL ? -1 : 0;
}

static int
set_dict_fields(FjNodeKind *kind, PyObject *names)
{
    Py_ssize_t count = fj_node_kind_fields(kind);
    kind->dict_fields = PyMem_Calloc((size_t)count + 1, sizeof(*kind->dict_fields));
    if (kind->dict_fields == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int is_dict_field = PySequence_Contains(names, PyTuple_GET_ITEM(kind->names, i));
        if (is_dict_field < 0) {
            return -1;
        }
        kind->dict_fields[i] = (uint8_t)is_dict_field;
    }
    return 0;
}

static int
read_object(FjNodeKind *kind, PyObject *answer)
{
    PyObject *groups[3] = {NULL}, *key, *keys, *dict_fields, *factories;
    const char *mode;
    if (!PyArg_ParseTuple(
            answer,
            "sOO!O!OO!sO!;an object is (name, key, dynamic, static, keys, dict_fields, "
            "mode, factories)",
            &(const char *){NULL}, &key, &PyTuple_Type, &groups[0], &PyTuple_Type, &groups[1],
            &keys, &PyTuple_Type, &dict_fields, &mode, &PyDict_Type, &factories)) {
        return -1;
    }
    int result = read_build(kind, mode, factories, &groups[2]);
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
    return PyTuple_GET_SIZE(dict_fields) == 0 ? 0 : set_dict_fields(kind, dict_fields);
}

static int
read_namedtuple(FjNodeKind *kind, PyObject *answer)
{
    PyObject *key, *names = NULL;
    if (!PyArg_ParseTuple(
            answer,
            "s|OpO!;a named tuple is (name, key, whether it is filled directly, names)",
            &(const char *){NULL}, &key, &kind->fill_directly, &PyTuple_Type, &names)) {
        return -1;
    }
    kind->names = names == NULL ? NULL : join_names(&names, 1);
    return names != NULL && kind->names == NULL ? -1 : 0;
}

static int
read_custom(FjNodeKind *kind, PyObject *answer)
{
    PyObject *key, *flatten = Py_None;
    if (!PyArg_ParseTuple(answer,
                          "s|OOp;a custom node is (name, key, flatten, whether it is itself)",
                          &(const char *){NULL}, &key, &flatten, &kind->is_itself)) {
        return -1;
    }
    kind->flatten = flatten == Py_None ? NULL : Py_NewRef(flatten);
    return 0;
}

static int
read_described(FjNodeKind *kind, PyObject *answer)
{
    PyObject *key, *describe;
    if (!PyArg_ParseTuple(answer, "sOO;a described type is (name, key, describe)",
                          &(const char *){NULL}, &key, &describe)) {
        return -1;
    }
    kind->describe = Py_NewRef(describe);
    kind->described = PyDict_New();
    return kind->described == NULL ? -1 : 0;
}

#define INFO_OF_ROW(code, name, value, keys, read, reader) [code] = {name, value, keys, read},
const FjCodeInfo fj_code_info[FJ_CODE_COUNT] = {FJ_CODES(INFO_OF_ROW)};

static FjNodeKind *
new_of_type(const FjNodeKind *kind, FjKindCode code, PyObject *dynamic, PyObject *statics)
{
    PyObject *groups[3] = {dynamic, statics, PyTuple_New(0)};
    FjNodeKind *made = groups[2] == NULL ? NULL : fj_node_kind_new(Py_TYPE(kind), kind->type);
    if (made != NULL) {
        made->code = code;
        if (set_names(made, groups) < 0) {
            Py_CLEAR(made);
        }
    }
    Py_XDECREF(groups[2]);
    return made;
}

/* Reads how values of the type compare: a key, (key, immutable) or (key, immutable, contents).
 * `key` and `immutable` can be None.  `contents` is None, True or a tuple of names. */
static int
read_key(FjNodeKind *kind, PyObject *key)
{
    PyObject *immutable = Py_None, *names = Py_None;
    if (PyTuple_Check(key) &&
        !PyArg_ParseTuple(key,
                          "OO|O;a key is a callable, (callable, immutable) or (callable, "
                          "immutable, contents)",
                          &key, &immutable, &names)) {
        return -1;
    }
    kind->key = key == Py_None ? NULL : Py_NewRef(key);
    kind->immutable = immutable == Py_None ? NULL : Py_NewRef(immutable);
    kind->key_is_contents = names == Py_True && kind->key != NULL;
    if (names == Py_None || names == Py_True) {
        return 0;
    }
    if (!PyTuple_Check(names)) {
        PyErr_SetString(PyExc_TypeError,
                        "the contents must be None, True, or a tuple of names");
        return -1;
    }
    PyObject *empty = PyTuple_New(0);
    kind->contents = empty == NULL ? NULL : new_of_type(kind, FJ_OBJECT, empty, names);
    Py_XDECREF(empty);
    return kind->contents == NULL ? -1 : 0;
}

int
fj_node_kind_read(FjNodeKind *kind, PyObject *answer)
{
    PyObject *name = NULL;
    if (!PyTuple_Check(answer) || PyTuple_GET_SIZE(answer) < 1 ||
        !PyUnicode_Check(name = PyTuple_GET_ITEM(answer, 0))) {
        PyErr_SetString(PyExc_TypeError, "classify() must return (name, key, details...)");
        return -1;
    }
    int code = 0;
    while (code < FJ_KIND_COUNT &&
           PyUnicode_CompareWithASCIIString(name, fj_code_info[code].name) != 0) {
        code++;
    }
    if (code == FJ_KIND_COUNT) {
        PyErr_Format(PyExc_ValueError, "classify() returned an unknown kind: %R", name);
        return -1;
    }
    kind->code = (FjKindCode)code;
    PyObject *key = PyTuple_GET_SIZE(answer) > 1 ? PyTuple_GET_ITEM(answer, 1) : Py_None;
    if (read_key(kind, key) < 0) {
        return -1;
    }
    return fj_code_info[code].read == NULL ? 0 : fj_code_info[code].read(kind, answer);
}

static FjNodeKind *
new_described(const FjNodeKind *kind, PyObject *description)
{
    PyObject *dynamic, *statics, *keys;
    if (!fj_expect_tuple(description, "describe") ||
        !PyArg_ParseTuple(description, "O!O!O;describe() must return (dynamic, static, keys)",
                          &PyTuple_Type, &dynamic, &PyTuple_Type, &statics, &keys)) {
        return NULL;
    }
    FjNodeKind *described = new_of_type(kind, FJ_MODULE, dynamic, statics);
    if (described != NULL) {
        described->weak = Py_NewRef(kind->weak);
        if (set_keys(described, keys) < 0) {
            Py_CLEAR(described);
        }
    }
    return described;
}

int
fj_node_kind_described(FjNodeKind *kind, PyObject *object, FjNodeKind **described)
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
    if (PyDict_GET_SIZE(kind->described) >= MOST_DESCRIBED) {
        PyDict_Clear(kind->described); /* later trees then differ from earlier ones: a miss */
    }
    PyObject *found = fj_compat_dict_get(kind->described, description);
    if (found == NULL && !PyErr_Occurred()) {
        found = (PyObject *)new_described(kind, description);
        if (found != NULL && PyDict_SetItem(kind->described, description, found) < 0) {
            Py_CLEAR(found);
        }
    }
    Py_DECREF(description);
    *described = (FjNodeKind *)found;
    return found == NULL ? -1 : 0;
}
