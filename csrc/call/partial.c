/* A FilterJit with some of its arguments given once, for loops that pass the same model on
 * each call.
 *
 * The partial has private copies of the arguments: their containers are recreated, while
 * arrays and static values (all leaves that are not arrays, and the values of static fields)
 * are the same objects.  `args` and `keywords` copy them again.  So a call sees the containers
 * as they were given.  To a call they are arguments like any others: since they never change,
 * large ones are soon known (known.h), and not walked.
 *
 * The partial shares the variants of its FilterJit, and predicts the next one by its own last
 * call, so two partials of one function with other models do not lead each other astray.
 *
 * It is no CallProxy (call_proxy.h): that makes a plain call of any callable, holds what it
 * was given, and has neither keywords nor a variant.  Those types would carry a dict to merge
 * and a prediction to look at in each call of a method, and only the reference counting would
 * be shared.
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
#include "call/call_hooks.h"

#define ARGS_INLINE 16

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjFilterJit *function;
    PyObject *args;     /* tuple: copies of the arguments given by position */
    PyObject *keywords; /* dict: copies of the arguments given by name */
    FjVariant *last;    /* owned: the variant of the last call, or NULL */
    PyObject *weakrefs;
} FjPartialJit;

/* ---- the call ---- */

/* Merges the keywords of a call with those of the partial; the call's take precedence.  A new
 * tuple of the names, with their values (borrowed) in `values`, or NULL with an error. */
static PyObject *
merge_keywords(FjPartialJit *self, PyObject *kwnames, PyObject *const *given,
               PyObject **values)
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
    if (all == NULL) {
        return NULL;
    }
    Py_INCREF(op); /* it holds the arguments */
    memcpy(all, ((PyTupleObject *)self->args)->ob_item, (size_t)first * sizeof(PyObject *));
    memcpy(all + first, args, (size_t)nargs * sizeof(PyObject *));
    if (PyDict_GET_SIZE(self->keywords) > 0) {
        names = merge_keywords(self, kwnames, args + nargs, all + first + nargs);
        if (names == NULL) {
            goto done;
        }
    }
    else {
        memcpy(all + first + nargs, args + nargs, (size_t)named * sizeof(PyObject *));
        names = Py_XNewRef(kwnames);
    }
    result = fj_call_from(self->function, &self->last, NULL, all, first + nargs, names);
done:
    Py_XDECREF(names);
    Py_DECREF(op);
    fj_scratch_free(all, room);
    return result;
}

/* ---- creating one ---- */

/* A copy of an argument, which the caller holds: a new reference, or NULL with an error. */
static PyObject *
copy_argument(FjRegistry *registry, PyObject *value)
{
    PyObject *copy = NULL, *room[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays;
    fj_leafbuf_init(&arrays, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_flatten_tree(registry, value, &arrays);
    if (structure != NULL) {
        copy = fj_build_tree(structure, arrays.items);
    }
    Py_XDECREF(structure);
    fj_leafbuf_clear(&arrays);
    return copy;
}

/* A new tuple of copies, or NULL with an error. */
static PyObject *
copy_args(FjRegistry *registry, PyObject *args)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < PyTuple_GET_SIZE(args); i++) {
        if (fj_list_take(list, copy_argument(registry, PyTuple_GET_ITEM(args, i))) < 0) {
            Py_CLEAR(list);
        }
    }
    PyObject *copies = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return copies;
}

/* A new dict of copies, or NULL with an error. */
static PyObject *
copy_keywords(FjRegistry *registry, PyObject *keywords)
{
    /* Python code that runs while a dict is iterated over must not change it. */
    PyObject *given = PyDict_Copy(keywords);
    PyObject *copies = given == NULL ? NULL : PyDict_New();
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (copies != NULL && PyDict_Next(given, &at, &name, &value)) {
        PyObject *copy = copy_argument(registry, value);
        if (copy == NULL || PyDict_SetItem(copies, name, copy) < 0) {
            Py_CLEAR(copies);
        }
        Py_XDECREF(copy);
    }
    Py_XDECREF(given);
    return copies;
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
        fj_hooks_prepare((FjFilterJit *)function) < 0) {
        return NULL;
    }
    if (!PyArg_ValidateKeywordArguments(keywords)) {
        return NULL;
    }
    FjRegistry *registry = ((FjFilterJit *)function)->cache->registry;
    PyObject *args_copy = copy_args(registry, positional);
    PyObject *keywords_copy = args_copy == NULL ? NULL : copy_keywords(registry, keywords);
    FjPartialJit *self =
        keywords_copy == NULL ? NULL : (FjPartialJit *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(args_copy);
        Py_XDECREF(keywords_copy);
        return NULL;
    }
    self->vectorcall = partial_vectorcall;
    self->function = (FjFilterJit *)Py_NewRef(function);
    self->args = args_copy;
    self->keywords = keywords_copy;
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
    Py_VISIT(self->last);
    return 0;
}

/* The members that a call reads stay, since finalizers may still make calls.  Any cycle
 * through them is broken by another object. */
static int
partial_clear(PyObject *op)
{
    Py_CLEAR(((FjPartialJit *)op)->last);
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
    Py_XDECREF(self->args);
    Py_XDECREF(self->keywords);
    Py_XDECREF(self->function);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
partial_repr(PyObject *op)
{
    FjPartialJit *self = (FjPartialJit *)op;
    PyObject *names = PyDict_Keys(self->keywords);
    PyObject *text =
        names == NULL
            ? NULL
            : PyUnicode_FromFormat("<partial of %R, given %zd by position and %R by name>",
                                   self->function, PyTuple_GET_SIZE(self->args), names);
    Py_XDECREF(names);
    return text;
}

static PyObject *
partial_get_args(PyObject *op, void *Py_UNUSED(closure))
{
    FjPartialJit *self = (FjPartialJit *)op;
    return copy_args(self->function->cache->registry, self->args);
}

static PyObject *
partial_get_keywords(PyObject *op, void *Py_UNUSED(closure))
{
    FjPartialJit *self = (FjPartialJit *)op;
    return copy_keywords(self->function->cache->registry, self->keywords);
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
    .name = "filterjit.PartialFilterJit",
    .basicsize = sizeof(FjPartialJit),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = partial_slots,
};
