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
    Py_CLEAR(self->fixed);
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
    WHAT(self->fixed);                                                                        \
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
                return PyErr_Format(PyExc_TypeError, "a field name must be a str");
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
set_names(FjNodeKind *kind, PyObject *dynamic, PyObject *statics, PyObject *extra)
{
    PyObject *groups[] = {dynamic, statics, extra};
    kind->names = join_names(groups, 3);
    if (kind->names == NULL) {
        return -1;
    }
    kind->dynamic = PyTuple_GET_SIZE(dynamic);
    kind->statics = PyTuple_GET_SIZE(statics);
    kind->extra_names = PyTuple_GET_SIZE(extra);
    Py_ssize_t total = PyTuple_GET_SIZE(kind->names);
    kind->places = PyMem_New(Py_ssize_t, total + 1);
    kind->offsets = PyMem_Calloc((size_t)total + 1, sizeof(*kind->offsets));
    if (kind->places == NULL || kind->offsets == NULL) {
        return fj_raise_no_memory();
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
        return fj_raise(PyExc_TypeError, "the keys must be a tuple, with one for each field");
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *key = PyTuple_GET_ITEM(keys, i);
        if (key != Py_None && !PyUnicode_CheckExact(key) &&
            !(PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) == 1)) {
            return fj_raise(PyExc_TypeError, "a key must be a str, a tuple of one, or None");
        }
    }
    kind->keys = Py_NewRef(keys);
    return 0;
}

/* The answer of `classify`: a dict with the name of the kind, and with what its values need
 * (FjNodeKind in node_kind.h).  All borrowed. */
typedef struct {
    const char *kind, *build;
    PyObject *key, *fixed, *contents;
    PyObject *dynamic, *statics, *extra; /* tuples of names; `dynamic` can be NULL */
    PyObject *keys, *dict_fields, *factories, *flatten, *describe;
    int fill_directly, is_its_aux;
} Answer;

static int
read_build(FjNodeKind *kind, const Answer *a)
{
    static const char *const modes[] = {[FJ_BUILD_CALL] = "call",
                                        [FJ_BUILD_INIT] = "init",
                                        [FJ_BUILD_FILL] = "fill",
                                        [FJ_BUILD_PARTIAL] = "partial"};
    int code = 0, makes = a->factories != NULL && PyDict_GET_SIZE(a->factories) > 0;
    while (code <= FJ_BUILD_PARTIAL && strcmp(a->build, modes[code]) != 0) {
        code++;
    }
    if (code > FJ_BUILD_PARTIAL || (code != FJ_BUILD_FILL && makes)) {
        PyErr_Format(PyExc_ValueError, "an object cannot be built by '%s'", a->build);
        return -1;
    }
    kind->build = (FjBuildMode)code;
    if (code == FJ_BUILD_PARTIAL && (kind->dynamic != 2 || kind->statics != 1)) {
        return fj_raise(PyExc_ValueError, "a partial has two dynamic fields and a static one");
    }
    return 0;
}

static int
set_dict_fields(FjNodeKind *kind, PyObject *names)
{
    Py_ssize_t count = fj_node_kind_fields(kind);
    kind->dict_fields = PyMem_Calloc((size_t)count + 1, sizeof(*kind->dict_fields));
    if (kind->dict_fields == NULL) {
        return fj_raise_no_memory();
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
read_object(FjNodeKind *kind, const Answer *a)
{
    PyObject *names = a->factories == NULL ? PyTuple_New(0) : fj_tuple_of(a->factories);
    PyObject *values = a->factories == NULL ? PyList_New(0) : PyDict_Values(a->factories);
    int result = names == NULL ? -1 : set_names(kind, a->dynamic, a->statics, names);
    kind->factories = values == NULL ? NULL : PyList_AsTuple(values);
    Py_XDECREF(names);
    Py_XDECREF(values);
    return result < 0 || kind->factories == NULL || set_keys(kind, a->keys) < 0 ||
                   read_build(kind, a) < 0
               ? -1
           : PyTuple_GET_SIZE(a->dict_fields) == 0 ? 0
                                                   : set_dict_fields(kind, a->dict_fields);
}

#define INFO_OF_ROW(code, name, value, keys, reader) [code] = {name, value, keys},
const FjCodeInfo fj_code_info[FJ_CODE_COUNT] = {FJ_CODES(INFO_OF_ROW)};

static FjNodeKind *
new_of_type(const FjNodeKind *kind, FjKindCode code, PyObject *dynamic, PyObject *statics)
{
    PyObject *empty = PyTuple_New(0);
    FjNodeKind *made = empty == NULL ? NULL : fj_node_kind_new(Py_TYPE(kind), kind->type);
    if (made != NULL) {
        made->code = code;
        if (set_names(made, dynamic, statics, empty) < 0) {
            Py_CLEAR(made);
        }
    }
    Py_XDECREF(empty);
    return made;
}

/* Reads how values of the type compare. */
static int
read_comparison(FjNodeKind *kind, const Answer *a, PyObject *empty)
{
    kind->key = a->key == Py_None ? NULL : Py_NewRef(a->key);
    kind->fixed = a->fixed == Py_None ? NULL : Py_NewRef(a->fixed);
    kind->key_is_contents = a->contents == Py_True && kind->key != NULL;
    if (a->contents == Py_None || a->contents == Py_True) {
        return 0;
    }
    if (!PyTuple_Check(a->contents)) {
        return fj_raise(PyExc_TypeError, "contents must be None, True, or a tuple of names");
    }
    kind->contents = new_of_type(kind, FJ_OBJECT, empty, a->contents);
    return kind->contents == NULL ? -1 : 0;
}

/* Reads what the instances of each kind consist of. */
static int
read_contents(FjNodeKind *kind, const Answer *a)
{
    int has_names = a->dynamic != NULL;
    kind->fill_directly = a->fill_directly;
    kind->is_its_aux = a->is_its_aux;
    kind->flatten = a->flatten == Py_None ? NULL : Py_NewRef(a->flatten);
    if (kind->code == FJ_NAMEDTUPLE) {
        kind->names = has_names ? join_names(&a->dynamic, 1) : NULL;
        return has_names && kind->names == NULL ? -1 : 0;
    }
    if (kind->code == FJ_DESCRIBED && a->describe != NULL) {
        kind->describe = Py_NewRef(a->describe);
        kind->described = PyDict_New();
        return kind->described == NULL ? -1 : 0;
    }
    if (kind->code == FJ_DESCRIBED ||
        (!has_names && (kind->code == FJ_MODULE || kind->code == FJ_OBJECT))) {
        PyErr_Format(PyExc_TypeError, "classify() returned no `%s` of the kind %s",
                     kind->code == FJ_DESCRIBED ? "describe" : "dynamic", a->kind);
        return -1;
    }
    return kind->code == FJ_MODULE   ? set_names(kind, a->dynamic, a->statics, a->extra)
           : kind->code == FJ_OBJECT ? read_object(kind, a)
                                     : 0;
}

/* Returns the code of the kind with this name.  FJ_KIND_COUNT with a ValueError if unknown. */
static FjKindCode
code_named(const char *name)
{
    int code = 0;
    while (code < FJ_KIND_COUNT && strcmp(name, fj_code_info[code].name) != 0) {
        code++;
    }
    if (code == FJ_KIND_COUNT) {
        PyErr_Format(PyExc_ValueError, "classify() returned an unknown kind: %s", name);
    }
    return (FjKindCode)code;
}

int
fj_node_kind_read(FjNodeKind *kind, PyObject *answer)
{
    static char *members[] = {"kind",     "key",           "fixed",      "contents",
                              "dynamic",  "static",        "extra",      "keys",
                              "build",    "dict_fields",   "factories",  "flatten",
                              "describe", "fill_directly", "is_its_aux", NULL};
    PyObject *empty = PyTuple_New(0);
    Answer a = {.key = Py_None,
                .fixed = Py_None,
                .contents = Py_None,
                .statics = empty,
                .extra = empty,
                .keys = Py_None,
                .dict_fields = empty,
                .flatten = Py_None,
                .build = "call"};
    int result = -1;
    if (!PyDict_Check(answer)) {
        PyErr_SetString(PyExc_TypeError, "classify() must return a dict");
    }
    else if (empty != NULL &&
             PyArg_ParseTupleAndKeywords(
                 empty, answer, "s|OOOO!O!O!OsO!O!OOpp:classify", members, &a.kind, &a.key,
                 &a.fixed, &a.contents, &PyTuple_Type, &a.dynamic, &PyTuple_Type, &a.statics,
                 &PyTuple_Type, &a.extra, &a.keys, &a.build, &PyTuple_Type, &a.dict_fields,
                 &PyDict_Type, &a.factories, &a.flatten, &a.describe, &a.fill_directly,
                 &a.is_its_aux)) {
        kind->code = code_named(a.kind);
        result = kind->code == FJ_KIND_COUNT || read_comparison(kind, &a, empty) < 0
                     ? -1
                     : read_contents(kind, &a);
    }
    Py_XDECREF(empty);
    return result;
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
