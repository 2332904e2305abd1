/* A FilterJit with some of its arguments given once, for loops that pass the same model on
 * each call: these arguments are flattened when the partial is created, and not on each call.
 *
 * The partial has private copies of the arguments: their containers are recreated, while
 * arrays and static values (all leaves that are not arrays, and the values of static fields)
 * are the same objects.  Nobody else ever gets one of these containers: `args` and `keywords`
 * copy them again.  So a call sees the containers as they were given, whether it hits or
 * misses.  A static value that is changed in place is noticed as in any call, since a copy
 * with a static that is not inert is not captured; neither is one whose classes were called
 * to build it, since their code may have kept it.
 *
 * A copy whose match cannot run Python code is captured, that is, stored with a list of its
 * arrays.  Once a call has found a variant, the next call with the same captured arguments
 * tries that variant first and does not walk them (FjCapture in match.h).  Other copies are
 * walked on each call, like any argument.
 *
 * The partial shares the variants of its FilterJit.
 *
 * Python code can run where copies are made (flatten.c, build.c), which is also where `args`
 * and `keywords` are read, where keywords are merged, and in calls (call.c).
 */
#include "call/partial.h"

#include <structmember.h>

#include "base/scratch.h"
#include "walk/build.h"
#include "walk/flatten.h"
#include "call/call.h"

#define ARGS_INLINE 16

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjFilterJit *function;
    PyObject *args;     /* tuple: copies of the arguments given by position */
    PyObject *keywords; /* dict: copies of the arguments given by name */
    PyObject *arrays;   /* list of tuples: the arrays of the captured arguments */
    FjCapturedArgs captured;
    PyObject *weakrefs;
} FjPartialJit;

/* ---- the call ---- */

/* Merges the keywords of a call with those of the partial; the call's take precedence.  A new
 * tuple of the names, with their values (borrowed) in `values`, or NULL with an error.  Sets
 * `*replaced` if the call has replaced one of the partial's. */
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
    Py_INCREF(op); /* it holds the captured arguments */
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
    /* A variant that is found for other arguments is not that of the captured ones. */
    result = fj_call_captured(self->function, replaced ? NULL : &self->captured, all,
                              first + nargs, names);
done:
    Py_XDECREF(names);
    Py_DECREF(op);
    fj_scratch_free(all, room);
    return result;
}

/* ---- creating one ---- */

/* Copies an argument, and captures the copy for `parameter`, unless that is -1 or matching the
 * copy may run Python code, or building it ran some.  The caller holds the argument.  A new
 * reference, or NULL with an error. */
static PyObject *
copy_and_capture(FjPartialJit *self, PyObject *value, Py_ssize_t parameter)
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
    if (copy != NULL && !fj_structure_runs_python(structure) &&
        !fj_build_calls_classes(structure) && parameter >= 0) {
        PyObject *tuple = fj_leafbuf_as_tuple(&arrays);
        if (tuple == NULL || PyList_Append(self->arrays, tuple) < 0) {
            Py_CLEAR(copy);
        }
        else {
            self->captured.items[self->captured.count++] =
                (FjCapture){.parameter = parameter,
                            .object = copy,
                            .arrays = ((PyTupleObject *)tuple)->ob_item,
                            .count = PyTuple_GET_SIZE(tuple)};
        }
        Py_XDECREF(tuple);
    }
    Py_XDECREF(structure);
    fj_leafbuf_clear(&arrays);
    return copy;
}

/* Copies and captures the arguments by position: a new tuple of the copies, or NULL with an
 * error. */
static PyObject *
copy_and_capture_args(FjPartialJit *self, PyObject *args)
{
    FjSignature *signature = self->function->cache->signature;
    PyObject *room[ARGS_INLINE];
    FjLeafBuf copies;
    int result = 0;
    fj_leafbuf_init(&copies, room, ARGS_INLINE);
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_GET_SIZE(args); i++) {
        Py_ssize_t parameter = i < signature->positional ? i : -1;
        result = fj_leafbuf_take(&copies,
                                 copy_and_capture(self, PyTuple_GET_ITEM(args, i), parameter));
    }
    PyObject *tuple = result < 0 ? NULL : fj_leafbuf_as_tuple(&copies);
    fj_leafbuf_clear(&copies);
    return tuple;
}

/* 0, or -1 with an error. */
static int
copy_and_capture_all(FjPartialJit *self, PyObject *args, PyObject *keywords)
{
    FjSignature *signature = self->function->cache->signature;
    PyObject *name, *value;
    Py_ssize_t at = 0;
    self->args = copy_and_capture_args(self, args);
    if (self->args == NULL) {
        return -1;
    }
    while (PyDict_Next(keywords, &at, &name, &value)) {
        PyObject *copy = copy_and_capture(self, value, fj_bind_find(signature, name));
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
    if (!PyArg_ValidateKeywordArguments(keywords)) {
        return NULL;
    }
    /* A copy, since Python code that runs while it is iterated over must not change it. */
    keywords = PyDict_Copy(keywords);
    FjPartialJit *self = keywords == NULL ? NULL : (FjPartialJit *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(keywords);
        return NULL;
    }
    fj_hide((PyObject *)self);
    Py_ssize_t count = PyTuple_GET_SIZE(positional) + PyDict_GET_SIZE(keywords);
    self->vectorcall = partial_vectorcall;
    self->function = (FjFilterJit *)Py_NewRef(function);
    self->keywords = PyDict_New();
    self->arrays = PyList_New(0);
    self->captured.items = PyMem_Calloc((size_t)count + 1, sizeof(FjCapture));
    if (self->captured.items == NULL) {
        PyErr_NoMemory();
    }
    if (self->keywords == NULL || self->arrays == NULL || self->captured.items == NULL ||
        copy_and_capture_all(self, positional, keywords) < 0) {
        Py_CLEAR(self);
    }
    else {
        fj_show((PyObject *)self);
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
    Py_VISIT(self->captured.variant);
    Py_VISIT(self->arrays);
    return 0;
}

/* The members that a call reads stay, since finalizers may still make calls.  Any cycle
 * through them is broken by another object. */
static int
partial_clear(PyObject *op)
{
    Py_CLEAR(((FjPartialJit *)op)->captured.variant);
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

/* Copies, since a container that can be changed from outside would be seen as it was by a
 * call that hits, and as it is by one that does not. */
static PyObject *
partial_get_args(PyObject *op, void *Py_UNUSED(closure))
{
    FjPartialJit *self = (FjPartialJit *)op;
    Py_ssize_t count = PyTuple_GET_SIZE(self->args);
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *copy = copy_and_capture(self, PyTuple_GET_ITEM(self->args, i), -1);
        if (fj_list_take(list, copy) < 0) {
            Py_CLEAR(list);
        }
    }
    PyObject *args = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return args;
}

static PyObject *
partial_get_keywords(PyObject *op, void *Py_UNUSED(closure))
{
    FjPartialJit *self = (FjPartialJit *)op;
    /* A copy, since Python code runs while it is iterated over. */
    PyObject *given = PyDict_Copy(self->keywords);
    PyObject *keywords = given == NULL ? NULL : PyDict_New();
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (keywords != NULL && PyDict_Next(given, &at, &name, &value)) {
        PyObject *copy = copy_and_capture(self, value, -1);
        if (copy == NULL || PyDict_SetItem(keywords, name, copy) < 0) {
            Py_CLEAR(keywords);
        }
        Py_XDECREF(copy);
    }
    Py_XDECREF(given);
    return keywords;
}

/* Pickles and copies are made from copies of the arguments, too. */
static PyObject *
partial_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyObject *args = partial_get_args(op, NULL);
    PyObject *keywords = args == NULL ? NULL : partial_get_keywords(op, NULL);
    if (keywords == NULL) {
        Py_XDECREF(args);
        return NULL;
    }
    return Py_BuildValue("O(ONN)", Py_TYPE(op), ((FjPartialJit *)op)->function, args,
                         keywords);
}

static PyMethodDef partial_methods[] = {
    {"__reduce__", partial_reduce, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef partial_getset[] = {
    {"args", partial_get_args, NULL, "Copies of the arguments that were given by position.",
     NULL},
    {"keywords", partial_get_keywords, NULL,
     "Copies of the arguments that were given by name.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef partial_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjPartialJit, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjPartialJit, weakrefs), READONLY, NULL},
    {"func", T_OBJECT, offsetof(FjPartialJit, function), READONLY, "The FilterJit."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    partial_doc,
    "PartialFilterJit(function, args, keywords)\n--\n\n"
    "A FilterJit with some of its arguments given once. FilterJit.partial returns one.");

static PyType_Slot partial_slots[] = {
    {Py_tp_doc, (void *)partial_doc},
    {Py_tp_new, partial_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, partial_traverse},
    {Py_tp_clear, partial_clear},
    {Py_tp_dealloc, partial_dealloc},
    {Py_tp_repr, partial_repr},
    {Py_tp_members, partial_members},
    {Py_tp_getset, partial_getset},
    {Py_tp_methods, partial_methods},
    {0, NULL},
};

PyType_Spec fj_partial_spec = {
    .name = "filterjit._core.PartialFilterJit",
    .basicsize = sizeof(FjPartialJit),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = partial_slots,
};
