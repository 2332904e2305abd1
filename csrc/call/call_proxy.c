/* The Python types CallProxy, a callable that calls a function and has the attributes of a
 * second object, and BoundMethod, a FilterJit bound to an instance.
 *
 * The public types are Python subclasses.  A compiled function is a CallProxy with the
 * attributes of the object that describes it.  A bound method has the attributes of its
 * FilterJit.  Like equinox.Partial, it is a pytree with the function and the instance as
 * children, and compares like one.
 *
 * Python code can run in the calls that a proxy makes, and in looking up attributes. */
#include "call/call_proxy.h"

#include <structmember.h>

#include "base/scratch.h"
#include "base/state.h"
#include "call/filter_jit.h"

#define ARGS_INLINE 8

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
    /* The functions for arbitrary classes also look for things that this class lacks. */
    type->tp_dealloc = base->tp_dealloc;
    type->tp_traverse = base->tp_traverse;
    type->tp_clear = base->tp_clear;
    PyType_Modified(type);
    Py_RETURN_NONE;
}

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *function;
    PyObject *attributes; /* has the attributes that the proxy adds */
    PyObject *weakrefs;
    PyObject *self; /* the first argument of a bound method; otherwise NULL */
} FjCallProxy;

static PyObject *
proxy_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FjCallProxy *self = (FjCallProxy *)op;
    if (self->self == NULL) {
        return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
    }
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    PyObject *result;
    if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {
        /* The caller allows overwriting args[-1] during the call. */
        PyObject **all = (PyObject **)args - 1;
        PyObject *overwritten = all[0];
        all[0] = self->self;
        result = PyObject_Vectorcall(self->function, all, (size_t)nargs + 1, kwnames);
        all[0] = overwritten;
        return result;
    }
    Py_ssize_t total = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    PyObject *stack[ARGS_INLINE];
    PyObject **all = fj_scratch_new(stack, ARGS_INLINE, 1 + total);
    if (all == NULL) {
        return NULL;
    }
    all[0] = self->self;
    memcpy(all + 1, args, (size_t)total * sizeof(PyObject *));
    result = PyObject_Vectorcall(self->function, all, (size_t)nargs + 1, kwnames);
    fj_scratch_free(all, stack);
    return result;
}

/* Returns an object of `type`, CallProxy or a subclass.  `self` can be NULL. */
static PyObject *
new_proxy(PyTypeObject *type, PyObject *function, PyObject *attributes, PyObject *self)
{
    FjCallProxy *proxy = (FjCallProxy *)type->tp_alloc(type, 0);
    if (proxy != NULL) {
        proxy->vectorcall = proxy_vectorcall;
        proxy->function = Py_NewRef(function);
        proxy->attributes = Py_NewRef(attributes);
        proxy->self = Py_XNewRef(self);
    }
    return (PyObject *)proxy;
}

static PyObject *
proxy_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "attributes", NULL};
    PyObject *function, *attributes;
    return PyArg_ParseTupleAndKeywords(args, kwargs, "OO:CallProxy", keywords, &function,
                                       &attributes)
               ? new_proxy(type, function, attributes, NULL)
               : NULL;
}

#define PROXY_REFERENCES(WHAT)                                                                \
    WHAT(self->function);                                                                     \
    WHAT(self->attributes);                                                                   \
    WHAT(self->self);

/* No tp_clear: it is immutable, like a tuple, and other objects break the cycles. */
FJ_GC_TYPE(proxy, FjCallProxy, PROXY_REFERENCES, 0, (void)0, (void)0)

/* Looks up an attribute of the proxy, then of `attributes`. */
static PyObject *
proxy_getattro(PyObject *op, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(op, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        value = PyObject_GetAttr(((FjCallProxy *)op)->attributes, name);
    }
    return value;
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
     "The callable behind it."},
    {"_attributes", T_OBJECT, offsetof(FjCallProxy, attributes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot proxy_slots[] = {
    {Py_tp_doc, "CallProxy(function, attributes)\n--\n\n"
                "Calls `function`."},
    {Py_tp_new, proxy_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, proxy_traverse},
    {Py_tp_dealloc, proxy_dealloc},
    {Py_tp_getattro, proxy_getattro},
    {Py_tp_methods, proxy_methods},
    {Py_tp_members, proxy_members},
    {0, NULL},
};

FJ_SPEC(fj_call_proxy_spec, "filterjit._core.CallProxy", sizeof(FjCallProxy), proxy_slots,
        Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_BASETYPE);

/* Returns the function's `__module__` and `__doc__`, as Python's bound methods do.
 * Descriptors can't do this: the type has its own `__module__`, by which pickle finds it. */
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
    return new_proxy(type, function, function, self);
}

int
fj_bound_method_is(PyObject *object, PyObject *function, PyObject *self)
{
    const FjCallProxy *bound = (FjCallProxy *)object;
    return Py_IS_TYPE(object, ((FjFilterJit *)function)->bound_type) &&
           bound->function == function && bound->self == self;
}

static PyObject *
bound_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "self", NULL};
    PyObject *function, *self;
    return PyArg_ParseTupleAndKeywords(args, kwargs, "OO:BoundMethod", keywords, &function,
                                       &self)
               ? new_proxy(type, function, function, self)
               : NULL;
}

static PyMemberDef bound_members[] = {
    {"__self__", T_OBJECT, offsetof(FjCallProxy, self), READONLY, NULL},
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

FJ_SPEC(fj_bound_method_spec, "filterjit._core.BoundMethod", sizeof(FjCallProxy), bound_slots,
        Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_BASETYPE);
