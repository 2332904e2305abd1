/* The descriptor of a method that is implemented in Python.
 *
 * FilterJit is a C type so that its calls are fast.  Its other methods (`lower`, `explain`,
 * `report` and so on) are implemented in Python, by methods of its `options`, the hooks.
 * There is no C function for each of them, but one table for each type, and this descriptor,
 * which calls the hook with the same arguments.  It looks like a method of a built-in type: it
 * has a name, a docstring and a signature that inspect.signature can read.
 *
 * Python code can run in each call.
 */
#include "call/hook_method.h"

#include <structmember.h>

#include "base/scratch.h"
#include "call/attribute.h"

#define ARGS_INLINE 8

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    const FjHookMethodDef *definition;
    PyTypeObject *owner; /* the type whose method it is */
    PyObject *name;
    PyObject *hook;
} FjHookMethod;

/* ---- the call ---- */

/* Checks the arguments as a method of a built-in type does.  0, or -1 with TypeError. */
static int
check_arguments(const FjHookMethod *self, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    if (nargs < 1 || !PyObject_TypeCheck(args[0], self->owner)) {
        PyErr_Format(PyExc_TypeError, "method `%U` needs a `%s` as its first argument",
                     self->name, self->owner->tp_name);
        return -1;
    }
    Py_ssize_t given = nargs - 1 + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    if (!self->definition->takes_arguments && given > 0) {
        PyErr_Format(PyExc_TypeError, "%U() takes no arguments (%zd given)", self->name,
                     given);
        return -1;
    }
    return 0;
}

/* Calls receiver.hook(first, ...) with the arguments that follow the first one in `args`. */
static PyObject *
call_hook(const FjHookMethod *self, PyObject *receiver, PyObject *first, PyObject *const *args,
          Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *room[ARGS_INLINE], *result = NULL;
    Py_ssize_t total = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    PyObject **all = fj_scratch_new(room, ARGS_INLINE, total + 1);
    if (all == NULL) {
        return NULL;
    }
    all[0] = receiver;
    all[1] = first;
    memcpy(all + 2, args + 1, (size_t)(total - 1) * sizeof(PyObject *));
    result = PyObject_VectorcallMethod(self->hook, all, (size_t)nargs + 1, kwnames);
    fj_scratch_free(all, room);
    return result;
}

static PyObject *
hook_method_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const FjHookMethod *self = (FjHookMethod *)op;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    PyObject *receiver, *first, *result = NULL;
    if (check_arguments(self, args, nargs, kwnames) < 0) {
        return NULL;
    }
    if (self->definition->receiver == FJ_HOOK_OF_OPTIONS) {
        receiver = PyObject_GetAttrString(args[0], "_options");
        first = Py_NewRef(args[0]);
    }
    else {
        receiver = PyObject_GetAttrString(args[0], "__func__");
        first = receiver == NULL ? NULL : PyObject_GetAttrString(args[0], "__self__");
    }
    if (receiver != NULL && first != NULL) {
        result = call_hook(self, receiver, first, args, nargs, kwnames);
    }
    Py_XDECREF(receiver);
    Py_XDECREF(first);
    return result;
}

/* ---- the Python type ---- */

int
fj_hook_methods_add(FjState *state, PyTypeObject *type, const FjHookMethodDef *table)
{
    for (; table->name != NULL; table++) {
        FjHookMethod *method =
            (FjHookMethod *)state->hook_method->tp_alloc(state->hook_method, 0);
        if (method == NULL) {
            return -1;
        }
        method->vectorcall = hook_method_vectorcall;
        method->definition = table;
        method->owner = (PyTypeObject *)Py_NewRef((PyObject *)type);
        method->name = PyUnicode_InternFromString(table->name);
        method->hook = PyUnicode_InternFromString(table->hook);
        /* The type is immutable, so PyObject_SetAttr would refuse. */
        int result = method->name == NULL || method->hook == NULL
                         ? -1
                         : PyDict_SetItem(type->tp_dict, method->name, (PyObject *)method);
        Py_DECREF(method);
        if (result < 0) {
            return -1;
        }
    }
    PyType_Modified(type);
    return 0;
}

static int
hook_method_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((FjHookMethod *)op)->owner);
    return 0;
}

/* There is no tp_clear: the type breaks the cycle by clearing its dict. */
static void
hook_method_dealloc(PyObject *op)
{
    FjHookMethod *self = (FjHookMethod *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->name);
    Py_XDECREF(self->hook);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
hook_method_repr(PyObject *op)
{
    const FjHookMethod *self = (FjHookMethod *)op;
    return PyUnicode_FromFormat("<method '%U' of '%s' objects>", self->name,
                                self->owner->tp_name);
}

/* Pickle and copy get it by getattr(owner, name). */
static PyObject *
hook_method_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const FjHookMethod *self = (FjHookMethod *)op;
    PyObject *builtins = PyEval_GetBuiltins(); /* borrowed */
    PyObject *getattr = builtins == NULL ? NULL : PyMapping_GetItemString(builtins, "getattr");
    return getattr == NULL ? NULL : Py_BuildValue("N(OO)", getattr, self->owner, self->name);
}

static PyObject *
hook_method_get_doc(PyObject *op, void *Py_UNUSED(closure))
{
    const char *doc = ((FjHookMethod *)op)->definition->doc;
    return doc == NULL ? Py_NewRef(Py_None) : PyUnicode_FromString(doc);
}

static PyObject *
hook_method_get_qualname(PyObject *op, void *Py_UNUSED(closure))
{
    const FjHookMethod *self = (FjHookMethod *)op;
    PyObject *owner = PyType_GetQualName(self->owner);
    PyObject *name = owner == NULL ? NULL : PyUnicode_FromFormat("%U.%U", owner, self->name);
    Py_XDECREF(owner);
    return name;
}

static PyObject *
hook_method_get_signature(PyObject *op, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(((FjHookMethod *)op)->definition->signature);
}

static PyMethodDef hook_method_methods[] = {
    {"__reduce__", hook_method_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef hook_method_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjHookMethod, vectorcall), READONLY, NULL},
    {"__name__", T_OBJECT, offsetof(FjHookMethod, name), READONLY, NULL},
    {"__objclass__", T_OBJECT, offsetof(FjHookMethod, owner), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef hook_method_getset[] = {
    {"__doc__", hook_method_get_doc, NULL, NULL, NULL},
    {"__qualname__", hook_method_get_qualname, NULL, NULL, NULL},
    {"__text_signature__", hook_method_get_signature, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot hook_method_slots[] = {
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, hook_method_traverse},
    {Py_tp_dealloc, hook_method_dealloc},
    {Py_tp_descr_get, fj_attribute_bind},
    {Py_tp_repr, hook_method_repr},
    {Py_tp_methods, hook_method_methods},
    {Py_tp_members, hook_method_members},
    {Py_tp_getset, hook_method_getset},
    {0, NULL},
};

PyType_Spec fj_hook_method_spec = {
    .name = "filterjit._core.hook_method",
    .basicsize = sizeof(FjHookMethod),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = hook_method_slots,
};
