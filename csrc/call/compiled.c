/* A function that was compiled ahead of time.
 *
 * It wraps a FilterJit of its own, whose Cache holds the one variant that was compiled, and
 * whose options raise an error instead of compiling another.  So calling it takes the same
 * path as any call of a FilterJit, with the same checks, and is always a hit.  Everything else
 * (its text, its cost, saving it) is done in Python, by the methods of `details`.
 *
 * Python code can run in calls (call.c), and where attributes are looked up or listed.
 */
#include "call/compiled.h"

#include <structmember.h>

#include "call/attribute.h"
#include "call/call.h"

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjFilterJit *function;
    PyObject *details;
    PyObject *weakrefs;
} FjCompiled;

static PyObject *
compiled_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return fj_call((PyObject *)((FjCompiled *)op)->function, args, nargsf, kwnames);
}

static PyObject *
compiled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "details", NULL};
    PyObject *function, *details;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Compiled", keywords,
                                     fj_state_of(type)->filter_jit, &function, &details)) {
        return NULL;
    }
    FjCompiled *self = (FjCompiled *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = compiled_vectorcall;
        self->function = (FjFilterJit *)Py_NewRef(function);
        self->details = Py_NewRef(details);
    }
    return (PyObject *)self;
}

static int
compiled_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjCompiled *self = (FjCompiled *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->function);
    Py_VISIT(self->details);
    return 0;
}

static void
compiled_dealloc(PyObject *op)
{
    FjCompiled *self = (FjCompiled *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    Py_XDECREF(self->function);
    Py_XDECREF(self->details);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
compiled_getattro(PyObject *op, PyObject *name)
{
    return fj_attribute_get(op, name, ((FjCompiled *)op)->details);
}

static PyObject *
compiled_dir(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyObject_Dir(((FjCompiled *)op)->details);
}

static PyObject *
compiled_repr(PyObject *op)
{
    return PyObject_Repr(((FjCompiled *)op)->details);
}

static PyMethodDef compiled_methods[] = {
    {"__dir__", compiled_dir, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef compiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjCompiled, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjCompiled, weakrefs), READONLY, NULL},
    {"details", T_OBJECT, offsetof(FjCompiled, details), READONLY,
     "The Python object whose attributes this object has too."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    compiled_doc,
    "Compiled(function, details)\n--\n\n"
    "A function that was compiled ahead of time, for one structure of its arguments.\n\n"
    "`filter_jit(f).lower(...).compile()` and `filterjit.load` return one. A call with\n"
    "arguments of another structure, shape or dtype, or with other static values, raises\n"
    "MismatchError, which names the argument.\n\n"
    "Examples:\n"
    "    >>> compiled = filter_jit(lambda x: x + 1).lower(jnp.ones(2)).compile()\n"
    "    >>> compiled(jnp.ones(3))\n"
    "    Traceback (most recent call last):\n"
    "    filterjit.MismatchError: `<lambda>` was compiled for other arguments:\n"
    "      `x`: compiled for float32[2], called with float32[3]\n"
    "    Compile it for these arguments too, or call the function itself.");

static PyType_Slot compiled_slots[] = {
    {Py_tp_doc, (void *)compiled_doc}, {Py_tp_new, compiled_new},
    {Py_tp_call, PyVectorcall_Call},   {Py_tp_traverse, compiled_traverse},
    {Py_tp_dealloc, compiled_dealloc}, {Py_tp_getattro, compiled_getattro},
    {Py_tp_repr, compiled_repr},       {Py_tp_methods, compiled_methods},
    {Py_tp_members, compiled_members}, {0, NULL},
};

PyType_Spec fj_compiled_spec = {
    .name = "filterjit.Compiled",
    .basicsize = sizeof(FjCompiled),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = compiled_slots,
};
