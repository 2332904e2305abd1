/* The Python type DirectContext.  Only dropping references runs Python code. */
#include "call/direct_context.h"

#include <structmember.h>

#include "base/state.h"

#define KEYWORD(index, keyword, ...) #keyword,
#define ANY_FORMAT(index, keyword) "O"
#define TYPE_FORMAT(index, keyword, type) "O!"
#define ANY_ADDRESS(index, keyword) , &jax[index]
#define TYPE_ADDRESS(index, keyword, type) , &type, &jax[index]

static PyObject *
context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {FJ_JAX(KEYWORD, KEYWORD) NULL};
    PyObject *jax[FJ_NUM_JAX];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs,
                                     FJ_JAX(ANY_FORMAT, TYPE_FORMAT) ":DirectContext",
                                     keywords FJ_JAX(ANY_ADDRESS, TYPE_ADDRESS))) {
        return NULL;
    }
    FjDirectContext *self = (FjDirectContext *)type->tp_alloc(type, 0);
    for (Py_ssize_t i = 0; self != NULL && i < FJ_NUM_JAX; i++) {
        self->jax[i] = Py_NewRef(jax[i]);
    }
    return (PyObject *)self;
}

static PyObject *
context_forget(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    (void)FJ_ADD(((FjDirectContext *)op)->epoch, 1);
    Py_RETURN_NONE;
}

#define CONTEXT_REFERENCES(WHAT)                                                              \
    for (int i = 0; i < FJ_NUM_JAX; i++) {                                                    \
        WHAT(self->jax[i]);                                                                   \
    }

/* No tp_clear, like a tuple: other objects break the cycles. */
FJ_GC_TYPE(context, FjDirectContext, CONTEXT_REFERENCES, 0, (void)0, (void)0)

static PyMethodDef context_methods[] = {
    FJ_METHOD("forget", context_forget, METH_NOARGS, "($self, /)",
              "Makes each Direct drop its entries before its next call."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef context_members[] = {
    {"enabled", T_INT, offsetof(FjDirectContext, enabled), 0, NULL},
    {"timed", T_INT, offsetof(FjDirectContext, timed), 0, NULL},
    {"after", T_PYSSIZET, offsetof(FjDirectContext, after), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot context_slots[] = {
    {Py_tp_doc, "The state that direct calls share: functions that ask JAX, and switches."},
    {Py_tp_new, context_new},
    {Py_tp_traverse, context_traverse},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_methods, context_methods},
    {Py_tp_members, context_members},
    {0, NULL},
};

FJ_SPEC(fj_direct_context_spec, "filterjit._core.DirectContext", sizeof(FjDirectContext),
        context_slots, 0);
