/* A FilterJit with some of its arguments given once, for loops that pass the same model again
 * and again: what was given is taken apart when the partial is made, and not on each call.
 *
 * It keeps private copies: the containers of what was given are built anew, so that nobody
 * else holds them and changes them; the arrays and the statics are the same objects.  So a
 * call sees the arguments as they were, on hits and on misses alike.  A copy with statics that
 * may change, or with nodes that Python takes apart, is walked on each call like any argument.
 *
 * The variants are those of the FilterJit.  Once a variant has been found for the captured
 * arguments (`captured.last`), they need not be looked at when it is tried again: match.h.
 *
 * Python code can run where a copy is made (flatten.c, build.c), where keywords are put
 * together, and in the call, which goes on to call.c.
 */
#include "call/partial.h"

#include <structmember.h>

#include "base/scratch.h"
#include "walk/build.h"
#include "call/call.h"
#include "walk/flatten.h"

#define ARGS_INLINE 16

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjFilterJit *function;
    PyObject *args;     /* tuple: private copies of what was given by position */
    PyObject *keywords; /* dict: of what was given by name */
    PyObject *arrays;   /* list of tuples: what the captures point into */
    FjCaptured captured;
    PyObject *weakrefs;
} FjPartialJit;

/* ---- the call ---- */

/* The keywords of a call: those given now, and the captured ones that are not among them.  A
 * new tuple of the names, the values in `values`, borrowed; NULL with an error.  `replaced` is
 * set where one is given in the place of a captured one. */
static PyObject *
merge_keywords(FjPartialJit *self, PyObject *kwnames, PyObject *const *given,
               PyObject **values, int *replaced)
{
    Py_ssize_t count = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    PyObject *names = PyList_New(0);
    PyObject *name, *value;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; names != NULL && i < count; i++) {
        values[i] = given[i];
        if (PyList_Append(names, PyTuple_GET_ITEM(kwnames, i)) < 0) {
            Py_CLEAR(names);
        }
    }
    while (names != NULL && PyDict_Next(self->keywords, &at, &name, &value)) {
        int again = kwnames == NULL ? 0 : PySequence_Contains(kwnames, name);
        if (again == 0) {
            values[PyList_GET_SIZE(names)] = value;
        }
        else {
            *replaced = 1;
        }
        if (again < 0 || (again == 0 && PyList_Append(names, name) < 0)) {
            Py_CLEAR(names);
        }
    }
    PyObject *tuple = names == NULL ? NULL : PyList_AsTuple(names);
    Py_XDECREF(names);
    return tuple;
}

static PyObject *
partial_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FjPartialJit *self = (FjPartialJit *)op;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    Py_ssize_t first = PyTuple_GET_SIZE(self->args);
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    Py_ssize_t total = first + nargs + named + PyDict_GET_SIZE(self->keywords);
    PyObject *room[ARGS_INLINE], *names = NULL, *result = NULL;
    PyObject **all = fj_scratch_new(room, ARGS_INLINE, total);
    int replaced = 0;
    if (all == NULL) {
        return NULL;
    }
    Py_INCREF(op); /* it holds what was captured */
    memcpy(all, ((PyTupleObject *)self->args)->ob_item, (size_t)first * sizeof(PyObject *));
    memcpy(all + first, args, (size_t)nargs * sizeof(PyObject *));
    if (PyDict_GET_SIZE(self->keywords) > 0) {
        names = merge_keywords(self, kwnames, args + nargs, all + first + nargs, &replaced);
        if (names == NULL) {
            goto done;
        }
    }
    else {
        memcpy(all + first + nargs, args + nargs, (size_t)named * sizeof(PyObject *));
        names = Py_XNewRef(kwnames);
    }
    /* The variant of other arguments than the captured ones says nothing of these. */
    result = fj_call_captured(self->function, replaced ? NULL : &self->captured, all,
                              first + nargs, names);
done:
    Py_XDECREF(names);
    Py_DECREF(op);
    fj_scratch_free(all, room);
    return result;
}

/* ---- making one ---- */

/* A private copy of an argument; where calls need not look at it again, it is captured for
 * `slot`, unless that is -1. */
static PyObject *
capture(FjPartialJit *self, PyObject *value, Py_ssize_t parameter)
{
    FjCache *cache = self->function->cache;
    PyObject *copy = NULL;
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays;
    fj_leafbuf_init(&arrays, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_flatten_tree(cache->registry, value, &arrays);
    if (structure != NULL) {
        copy = fj_build_tree(structure, arrays.items);
    }
    if (copy != NULL && !structure->may_run_python && parameter >= 0) {
        PyObject *tuple = fj_leafbuf_as_tuple(&arrays);
        if (tuple == NULL || PyList_Append(self->arrays, tuple) < 0) {
            Py_CLEAR(copy);
        }
        else {
            self->captured.items[self->captured.count++] = (FjCapture){
                parameter, copy, ((PyTupleObject *)tuple)->ob_item, PyTuple_GET_SIZE(tuple)};
        }
        Py_XDECREF(tuple);
    }
    Py_XDECREF(structure);
    fj_leafbuf_clear(&arrays);
    return copy;
}

static int
capture_all(FjPartialJit *self, PyObject *args, PyObject *keywords)
{
    FjSignature *signature = self->function->cache->signature;
    PyObject *name, *value;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        Py_ssize_t parameter = i < signature->positional ? i : -1;
        PyObject *copy = capture(self, PyTuple_GET_ITEM(args, i), parameter);
        if (copy == NULL) {
            return -1;
        }
        PyTuple_SET_ITEM(self->args, i, copy);
    }
    while (PyDict_Next(keywords, &at, &name, &value)) {
        PyObject *copy = capture(self, value, fj_bind_find(signature, name));
        int result = copy == NULL ? -1 : PyDict_SetItem(self->keywords, name, copy);
        Py_XDECREF(copy);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
partial_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "args", "keywords", NULL};
    PyObject *function, *positional, *keywords;
    FjState *state = fj_state_of(type);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!:PartialFilterJit", names,
                                     state->filter_jit, &function, &PyTuple_Type, &positional,
                                     &PyDict_Type, &keywords) ||
        fj_call_prepare((FjFilterJit *)function) < 0) {
        return NULL;
    }
    /* Ours alone while it is gone through. */
    keywords = PyDict_Copy(keywords);
    FjPartialJit *self = keywords == NULL ? NULL : (FjPartialJit *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(keywords);
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(positional) + PyDict_GET_SIZE(keywords);
    self->vectorcall = partial_vectorcall;
    self->function = (FjFilterJit *)Py_NewRef(function);
    self->args = PyTuple_New(PyTuple_GET_SIZE(positional));
    self->keywords = PyDict_New();
    self->arrays = PyList_New(0);
    self->captured.items = PyMem_Calloc((size_t)count + 1, sizeof(FjCapture));
    if (self->captured.items == NULL) {
        PyErr_NoMemory();
    }
    if (self->args == NULL || self->keywords == NULL || self->arrays == NULL ||
        self->captured.items == NULL || capture_all(self, positional, keywords) < 0) {
        Py_CLEAR(self);
    }
    Py_DECREF(keywords);
    return (PyObject *)self;
}

static int
partial_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjPartialJit *self = (FjPartialJit *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->function);
    Py_VISIT(self->args);
    Py_VISIT(self->keywords);
    Py_VISIT(self->captured.last);
    Py_VISIT(self->arrays);
    return 0;
}

/* What a call reads stays until the end: function, args, keywords, the captured arrays.  They
 * are in no cycle that does not go through something that others clear. */
static int
partial_clear(PyObject *op)
{
    Py_CLEAR(((FjPartialJit *)op)->captured.last);
    return 0;
}

static void
partial_dealloc(PyObject *op)
{
    FjPartialJit *self = (FjPartialJit *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    partial_clear(op);
    PyMem_Free(self->captured.items);
    Py_XDECREF(self->args);
    Py_XDECREF(self->keywords);
    Py_XDECREF(self->arrays);
    Py_XDECREF(self->function);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
partial_repr(PyObject *op)
{
    return PyUnicode_FromFormat("<partial of %R>", ((FjPartialJit *)op)->function);
}

/* A copy: calls borrow from the dict itself, and count on its size. */
static PyObject *
partial_get_keywords(PyObject *op, void *Py_UNUSED(closure))
{
    return PyDict_Copy(((FjPartialJit *)op)->keywords);
}

static PyGetSetDef partial_getset[] = {
    {"keywords", partial_get_keywords, NULL, "copies of what was given by name", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef partial_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjPartialJit, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjPartialJit, weakrefs), READONLY, NULL},
    {"func", T_OBJECT, offsetof(FjPartialJit, function), READONLY, "the FilterJit"},
    {"args", T_OBJECT, offsetof(FjPartialJit, args), READONLY,
     "copies of what was given by position"},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(partial_doc,
             "PartialFilterJit(function, args, keywords)\n--\n\n"
             "A FilterJit with some of its arguments given once; made by its `partial`.");

static PyType_Slot partial_slots[] = {
    {Py_tp_doc, (void *)partial_doc}, {Py_tp_new, partial_new},
    {Py_tp_call, PyVectorcall_Call},  {Py_tp_traverse, partial_traverse},
    {Py_tp_clear, partial_clear},     {Py_tp_dealloc, partial_dealloc},
    {Py_tp_repr, partial_repr},       {Py_tp_members, partial_members},
    {Py_tp_getset, partial_getset},   {0, NULL},
};

PyType_Spec fj_partial_spec = {
    .name = "filterjit._core.PartialFilterJit",
    .basicsize = sizeof(FjPartialJit),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = partial_slots,
};
