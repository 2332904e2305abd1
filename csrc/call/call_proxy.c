/* The Python types CallProxy, a callable that calls another one with arguments of its own in
 * front and has the attributes of an object, and BoundMethod, a FilterJit bound to an
 * instance.
 *
 * The public types are subclasses in Python.  A compiled function has nothing in front, and
 * the attributes of the object that describes it; a partial has the arguments that were given
 * once in front.  A bound method has its instance in front, and the attributes of the
 * FilterJit: it is registered as a pytree whose children are the function and the instance, as
 * equinox.Partial is, and like that it is compared by these, as a pytree.
 *
 * Python code can run in calls, which are those of the other callable, and where attributes
 * are looked up.
 */
#include "call/call_proxy.h"

#include <structmember.h>

#include "base/scratch.h"
#include "base/state.h"
#include "call/filter_jit.h"

#define ARGS_INLINE 8

/* ---- attributes of the types that stand for another callable ---- */

/* Looks up an attribute of `op` or, if it has none of this name, of `wrapped`. */
static PyObject *
attribute_get(PyObject *op, PyObject *name, PyObject *wrapped)
{
    PyObject *value = PyObject_GenericGetAttr(op, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = PyObject_GetAttr(wrapped, name);
    }
    return value;
}

PyObject *
fj_attribute_seal(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyTypeObject *type = (PyTypeObject *)op, *base = type->tp_base;
    if (type->tp_basicsize != base->tp_basicsize ||
        type->tp_dictoffset != base->tp_dictoffset || type->tp_finalize != NULL ||
        type->tp_call != base->tp_call || type->tp_descr_get != base->tp_descr_get) {
        Py_RETURN_NONE;
    }
    type->tp_flags &= ~Py_TPFLAGS_BASETYPE;
    type->tp_flags |=
        Py_TPFLAGS_IMMUTABLETYPE |
        (base->tp_flags & (Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR));
    /* Instead of those for any class, which also look for what it does not have. */
    type->tp_dealloc = base->tp_dealloc;
    type->tp_traverse = base->tp_traverse;
    type->tp_clear = base->tp_clear;
    PyType_Modified(type);
    Py_RETURN_NONE;
}

/* ---- CallProxy ---- */

typedef struct {
    PyObject_VAR_HEAD vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *attributes; /* the object whose attributes this one has too */
    PyObject *weakrefs;
    PyObject *args[]; /* those in front */
} FjCallProxy;

static PyObject *
proxy_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FjCallProxy *self = (FjCallProxy *)op;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), own = Py_SIZE(op);
    PyObject *result;
    if (own == 0) {
        return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
    }
    if (own == 1 && (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET)) {
        /* The caller allows args[-1] to be overwritten for the time of the call. */
        PyObject **all = (PyObject **)args - 1;
        PyObject *overwritten = all[0];
        all[0] = self->args[0];
        result = PyObject_Vectorcall(self->function, all, (size_t)nargs + 1, kwnames);
        all[0] = overwritten;
        return result;
    }
    Py_ssize_t total = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    PyObject *room[ARGS_INLINE];
    PyObject **all = fj_scratch_new(room, ARGS_INLINE, own + total);
    if (all == NULL) {
        return NULL;
    }
    memcpy(all, self->args, (size_t)own * sizeof(PyObject *));
    memcpy(all + own, args, (size_t)total * sizeof(PyObject *));
    result = PyObject_Vectorcall(self->function, all, (size_t)(own + nargs), kwnames);
    fj_scratch_free(all, room);
    return result;
}

/* A new object of `type`, CallProxy or a subclass, with room for `count` arguments, or NULL
 * with an error. */
static FjCallProxy *
proxy_alloc(PyTypeObject *type, PyObject *function, PyObject *attributes, Py_ssize_t count)
{
    FjCallProxy *self = (FjCallProxy *)type->tp_alloc(type, count);
    if (self != NULL) {
        self->vectorcall = proxy_vectorcall;
        self->function = Py_NewRef(function);
        self->attributes = Py_NewRef(attributes);
    }
    return self;
}

static PyObject *
proxy_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "args", "attributes", NULL};
    PyObject *function, *own, *attributes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O:CallProxy", keywords, &function,
                                     &PyTuple_Type, &own, &attributes)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(own);
    FjCallProxy *self = proxy_alloc(type, function, attributes, count);
    for (Py_ssize_t i = 0; self != NULL && i < count; i++) {
        self->args[i] = Py_NewRef(PyTuple_GET_ITEM(own, i));
    }
    return (PyObject *)self;
}

static int
proxy_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjCallProxy *self = (FjCallProxy *)op;
    FJ_VISIT_ALL(Py_TYPE(op), self->function, self->attributes);
    for (Py_ssize_t i = 0; i < Py_SIZE(op); i++) {
        Py_VISIT(self->args[i]);
    }
    return 0;
}

/* There is no tp_clear: it is immutable, as a tuple is, and other objects break the cycles. */
static void
proxy_dealloc(PyObject *op)
{
    FjCallProxy *self = (FjCallProxy *)op;
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    Py_XDECREF(self->function);
    Py_XDECREF(self->attributes);
    for (Py_ssize_t i = 0; i < Py_SIZE(op); i++) {
        Py_XDECREF(self->args[i]);
    }
    fj_object_free(op);
}

static PyObject *
proxy_getattro(PyObject *op, PyObject *name)
{
    return attribute_get(op, name, ((FjCallProxy *)op)->attributes);
}

static PyMethodDef proxy_methods[] = {
    {"__init_subclass__", fj_attribute_seal, METH_NOARGS | METH_CLASS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef proxy_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjCallProxy, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjCallProxy, weakrefs), READONLY, NULL},
    {"__func__", T_OBJECT, offsetof(FjCallProxy, function), READONLY,
     "The callable that it calls."},
    {"_attributes", T_OBJECT, offsetof(FjCallProxy, attributes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot proxy_slots[] = {
    {Py_tp_doc, "CallProxy(function, args, attributes)\n--\n\n"
                "Calls `function` with `args` in front."},
    {Py_tp_new, proxy_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, proxy_traverse},
    {Py_tp_dealloc, proxy_dealloc},
    {Py_tp_getattro, proxy_getattro},
    {Py_tp_methods, proxy_methods},
    {Py_tp_members, proxy_members},
    {0, NULL},
};

PyType_Spec fj_call_proxy_spec = {
    .name = "filterjit._core.CallProxy",
    .basicsize = sizeof(FjCallProxy),
    .itemsize = sizeof(PyObject *),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = proxy_slots,
};

/* ---- BoundMethod ---- */

/* It also has the `__module__` and `__doc__` of its function, as Python's bound methods have,
 * though its type has its own: a descriptor in the type would take the place of these, and
 * pickle finds a type by its `__module__`. */
static PyObject *
bound_getattro(PyObject *op, PyObject *name)
{
    if (PyUnicode_Check(name) && (PyUnicode_CompareWithASCIIString(name, "__module__") == 0 ||
                                  PyUnicode_CompareWithASCIIString(name, "__doc__") == 0)) {
        return PyObject_GetAttr(((FjCallProxy *)op)->function, name);
    }
    return proxy_getattro(op, name);
}

PyObject *
fj_bound_method_new(PyTypeObject *type, PyObject *function, PyObject *self)
{
    FjCallProxy *bound = proxy_alloc(type, function, function, 1);
    if (bound != NULL) {
        bound->args[0] = Py_NewRef(self);
    }
    return (PyObject *)bound;
}

int
fj_bound_method_is(PyObject *object, PyObject *function, PyObject *self)
{
    const FjCallProxy *bound = (FjCallProxy *)object;
    return Py_IS_TYPE(object, ((FjFilterJit *)function)->bound_type) &&
           bound->function == function && bound->args[0] == self;
}

static PyObject *
bound_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "self", NULL};
    PyObject *function, *self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:BoundMethod", keywords, &function,
                                     &self)) {
        return NULL;
    }
    return fj_bound_method_new(type, function, self);
}

static PyMemberDef bound_members[] = {
    {"__self__", T_OBJECT, offsetof(FjCallProxy, args), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot bound_slots[] = {
    {Py_tp_doc, "BoundMethod(function, self)\n--\n\n"
                "A FilterJit bound to an instance, without methods."},
    {Py_tp_new, bound_new},
    {Py_tp_traverse, proxy_traverse},
    {Py_tp_dealloc, proxy_dealloc},
    {Py_tp_getattro, bound_getattro},
    {Py_tp_members, bound_members},
    {0, NULL},
};

PyType_Spec fj_bound_method_spec = {
    .name = "filterjit._core.BoundMethod",
    .basicsize = sizeof(FjCallProxy),
    .itemsize = sizeof(PyObject *),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = bound_slots,
};
