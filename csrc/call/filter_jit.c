/* The Python type FilterJit, except for its calls (call.c).
 *
 * The public type, `filterjit.types.FilterJit`, is a Python subclass with the methods that
 * calls don't need.
 *
 * Python code can run in hashing and comparing (hooks.prepare), and in building the function.
 */
#include "call/filter_jit.h"

#include <structmember.h>

#include "base/hash.h"
#include "walk/build.h"
#include "call/call_proxy.h"
#include "call/call.h"
#include "call/call_hooks.h"

/* Returns a FilterJit.  The class attribute `_bound_type` is the type of its bound methods. */
static FjFilterJit *
allocate(PyTypeObject *type)
{
    FjState *state = fj_state_of(type);
    PyObject *bound_type = _PyType_Lookup(type, state->str__bound_type); /* borrowed */
    if (bound_type == NULL) {
        bound_type = (PyObject *)state->bound_method;
    }
    if (!PyType_Check(bound_type) ||
        !PyType_IsSubtype((PyTypeObject *)bound_type, state->bound_method)) {
        PyErr_SetString(PyExc_TypeError, "_bound_type must be a subclass of BoundMethod");
        return NULL;
    }
    FjFilterJit *self = (FjFilterJit *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = fj_call;
        self->bound_type = (PyTypeObject *)Py_NewRef(bound_type);
    }
    return self;
}

static PyObject *
filter_jit_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "hooks", "signature", "attributes", NULL};
    PyObject *function, *hooks, *signature, *attributes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO!:FilterJit", keywords, &function,
                                     &hooks, &signature, &PyDict_Type, &attributes)) {
        return NULL;
    }
    FjFilterJit *self = allocate(type);
    if (self != NULL) {
        self->function = Py_NewRef(function);
        self->hooks = Py_NewRef(hooks);
        self->signature = Py_NewRef(signature);
        self->dict = Py_NewRef(attributes);
    }
    return (PyObject *)self;
}

static PyObject *
filter_jit_rebuild(PyObject *type, PyObject *args)
{
    FjCache *cache;
    PyObject *given;
    if (!PyArg_ParseTuple(args, "O!O:_rebuild", fj_state_of((PyTypeObject *)type)->cache,
                          &cache, &given)) {
        return NULL;
    }
    PyObject *arrays = fj_tuple_of(given);
    FjFilterJit *self = NULL;
    if (arrays != NULL && PyTuple_GET_SIZE(arrays) != cache->function->open_leaves) {
        PyErr_Format(PyExc_ValueError, "this function holds %zd arrays, not %zd",
                     cache->function->open_leaves, PyTuple_GET_SIZE(arrays));
    }
    else if (arrays != NULL) {
        self = allocate((PyTypeObject *)type);
    }
    if (self == NULL) {
        Py_XDECREF(arrays);
        return NULL;
    }
    self->arrays = arrays;
    self->cache = (FjCache *)Py_NewRef((PyObject *)cache);
    self->hooks = Py_NewRef(cache->hooks);
    self->signature = Py_NewRef(Py_None);
    self->dict = cache->attributes == NULL ? PyDict_New() : PyDict_Copy(cache->attributes);
    if (self->dict == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
filter_jit_clear(PyObject *op)
{
    FjFilterJit *self = (FjFilterJit *)op;
    Py_CLEAR(self->dict);
    Py_CLEAR(self->signature);
    Py_CLEAR(self->function);
    /* Keeps the rest: finalizers can still call the object, and calls and methods read it.
     * Clearing the members above, or the Cache's table, breaks every cycle. */
    return 0;
}

#define FILTER_JIT_REFERENCES(WHAT)                                                           \
    WHAT(self->bound_type);                                                                   \
    WHAT(self->function);                                                                     \
    WHAT(self->hooks);                                                                        \
    WHAT(self->signature);                                                                    \
    WHAT(self->cache);                                                                        \
    WHAT(self->arrays);                                                                       \
    WHAT(self->dict);

FJ_GC_TYPE(filter_jit, FjFilterJit, FILTER_JIT_REFERENCES, 0, (void)0, (void)0)

static PyObject *
filter_jit_get_function(PyObject *op, void *Py_UNUSED(closure))
{
    FjFilterJit *self = (FjFilterJit *)op;
    PyObject *function = FJ_LOAD_POINTER(self->function);
    if (function == NULL) {
        if (self->cache == NULL) {
            return PyErr_Format(PyExc_AttributeError, "_function");
        }
        function = fj_keep_first(
            op, &self->function,
            fj_build_tree(self->cache->function, ((PyTupleObject *)self->arrays)->ob_item));
    }
    return Py_XNewRef(function);
}

PyObject *
fj_filter_jit_bind(PyObject *op, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None
               ? Py_NewRef(op)
               : fj_bound_method_new(((FjFilterJit *)op)->bound_type, op, instance);
}

/* FilterJits are equal if they share their Cache: equal functions with equal settings.  If the
 * function holds arrays, its FilterJit is unhashable and only equals itself. */
static Py_hash_t
filter_jit_hash(PyObject *op)
{
    FjFilterJit *self = (FjFilterJit *)op;
    if (fj_hooks_prepare(self) < 0) {
        return -1;
    }
    if (PyTuple_GET_SIZE(self->arrays) > 0) {
        PyErr_SetString(
            PyExc_TypeError,
            "unhashable: this filter_jit wraps a pytree that holds arrays; pass it "
            "as an argument, or keep it in a field that is not static");
        return -1;
    }
    return fj_hash_finish(fj_hash_address(self->cache));
}

static PyObject *
filter_jit_richcompare(PyObject *a, PyObject *b, int operation)
{
    if (Py_TYPE(a) != Py_TYPE(b) || (operation != Py_EQ && operation != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    FjFilterJit *x = (FjFilterJit *)a, *y = (FjFilterJit *)b;
    int same = a == b;
    if (!same) {
        if (fj_hooks_prepare(x) < 0 || fj_hooks_prepare(y) < 0) {
            return NULL;
        }
        same = x->cache == y->cache && PyTuple_GET_SIZE(x->arrays) == 0;
    }
    return PyBool_FromLong(same == (operation == Py_EQ));
}

static PyObject *
filter_jit_parts(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjFilterJit *self = (FjFilterJit *)op;
    if (fj_hooks_prepare(self) < 0) {
        return NULL;
    }
    return PyTuple_Pack(2, self->cache, self->arrays);
}

static PyObject *
filter_jit_find(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return fj_call_find((FjFilterJit *)op, FJ_FIND, args, nargs, kwnames);
}

static PyObject *
filter_jit_find_or_compile(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                           PyObject *kwnames)
{
    return fj_call_find((FjFilterJit *)op, FJ_FIND_OR_COMPILE, args, nargs, kwnames);
}

static PyMethodDef filter_jit_methods[] = {
    FJ_METHOD("_find", filter_jit_find, METH_FASTCALL | METH_KEYWORDS,
              "($self, /, *args, **kwargs)",
              "Returns (variant or None, structure, arrays) of a call, without compiling\n"
              "anything."),
    FJ_METHOD("_find_or_compile", filter_jit_find_or_compile, METH_FASTCALL | METH_KEYWORDS,
              "($self, /, *args, **kwargs)",
              "The same, but compiles a missing variant, and caches it nowhere."),
    FJ_METHOD("_parts", filter_jit_parts, METH_NOARGS, "($self, /)",
              "Returns (cache, arrays)."),
    FJ_METHOD(
        "_rebuild", filter_jit_rebuild, METH_VARARGS | METH_CLASS, "($type, cache, arrays, /)",
        "Rebuilds a FilterJit from its _parts(), for jax.tree_util.register_pytree_node."),
    {"__init_subclass__", fj_attribute_seal, METH_NOARGS | METH_CLASS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef filter_jit_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjFilterJit, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(FjFilterJit, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjFilterJit, weakrefs), READONLY, NULL},
    {"_hooks", T_OBJECT, offsetof(FjFilterJit, hooks), READONLY, NULL},
    {"_given_signature", T_OBJECT, offsetof(FjFilterJit, signature), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef filter_jit_getset[] = {
    {"_function", filter_jit_get_function, NULL,
     "The function or callable pytree that calls run.", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot filter_jit_slots[] = {
    {Py_tp_doc, "FilterJit(function, hooks, signature, attributes)\n--\n\n"
                "The calls of a jitted function, without its methods."},
    {Py_tp_new, filter_jit_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, filter_jit_traverse},
    {Py_tp_clear, filter_jit_clear},
    {Py_tp_dealloc, filter_jit_dealloc},
    {Py_tp_hash, filter_jit_hash},
    {Py_tp_richcompare, filter_jit_richcompare},
    {Py_tp_descr_get, fj_filter_jit_bind},
    {Py_tp_methods, filter_jit_methods},
    {Py_tp_members, filter_jit_members},
    {Py_tp_getset, filter_jit_getset},
    {0, NULL},
};

FJ_SPEC(fj_filter_jit_spec, "filterjit._core.FilterJit", sizeof(FjFilterJit), filter_jit_slots,
        Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_BASETYPE);
