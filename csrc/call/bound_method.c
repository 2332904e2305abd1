/* The Python type BoundMethod: a FilterJit bound to an instance, a CallProxy with the instance
 * in front and the attributes of the function.
 *
 * The public type, BoundFilterJit, is a subclass in Python.  It is registered as a pytree
 * whose children are the function and the instance, as equinox.Partial is, and like that it is
 * compared by these, as a pytree.
 *
 * Python code can run in calls, and where attributes of the function are looked up.
 */
#include "call/bound_method.h"

#include <structmember.h>

#include "call/call_proxy.h"
#include "call/filter_jit.h"

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
    return fj_call_proxy_getattro(op, name);
}

PyObject *
fj_bound_method_new(PyTypeObject *type, PyObject *function, PyObject *self)
{
    FjCallProxy *bound = fj_call_proxy_new(type, function, function, 1);
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
    {"__self__", T_OBJECT, offsetof(FjCallProxy, args), READONLY, "The instance."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(bound_doc, "BoundMethod(function, self)\n--\n\n"
                        "A FilterJit bound to an instance, without methods.");

static PyType_Slot bound_slots[] = {
    {Py_tp_doc, (void *)bound_doc},
    {Py_tp_new, bound_new},
    {Py_tp_traverse, fj_call_proxy_traverse},
    {Py_tp_dealloc, fj_call_proxy_dealloc},
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
