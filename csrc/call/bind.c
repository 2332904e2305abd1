/* Binds arguments like inspect.Signature.bind.
 *
 * If the arguments don't fit, fj_bind only reports it.  The hook `failed` (call_hooks.c)
 * raises the TypeError.
 *
 * In fj_bind, Python code can run only with *args or **kwargs: finalizers, if allocating the
 * tuple or dict starts the garbage collector, and __hash__ and __eq__ of a keyword that isn't
 * exactly a str.  fj_bind_pack can run any code.  The caller holds the arguments. */
#include "call/bind.h"

#include <structmember.h>

PyObject *
fj_bind_pack(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *keywords = PyDict_New(), *positional = NULL;
    for (Py_ssize_t i = 0;
         keywords != NULL && kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) {
            Py_CLEAR(keywords);
        }
    }
    if (keywords != NULL) {
        positional = fj_tuple_from(args, nargs);
    }
    if (positional == NULL) {
        Py_XDECREF(keywords);
        return NULL;
    }
    return Py_BuildValue("(NN)", positional, keywords);
}

/* Returns the parameter for the keyword `name`, or -1 if only **kwargs could take it. */
static Py_ssize_t
find_keyword(const FjSignature *sig, PyObject *name)
{
    for (Py_ssize_t i = sig->positional_only; i < sig->num_parameters; i++) {
        if (PyTuple_GET_ITEM(sig->names, i) == name && i != sig->varargs && i != sig->varkw) {
            return i;
        }
    }
    /* Rarely, one of the two isn't interned. */
    for (Py_ssize_t i = sig->positional_only; i < sig->num_parameters; i++) {
        if (i != sig->varargs && i != sig->varkw &&
            PyUnicode_Compare(PyTuple_GET_ITEM(sig->names, i), name) == 0) {
            return i;
        }
    }
    return -1;
}

static int
bind_keywords(const FjSignature *sig, PyObject *const *values, PyObject *kwnames,
              PyObject **arguments, FjPackedArgs *packed)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        Py_ssize_t i = find_keyword(sig, name);
        if (i >= 0) {
            if (arguments[i] != NULL) {
                return 0;
            }
            arguments[i] = values[k];
            continue;
        }
        if (sig->varkw < 0) {
            return 0;
        }
        if (packed->varkw == NULL && (packed->varkw = PyDict_New()) == NULL) {
            return -1;
        }
        if (PyDict_SetItem(packed->varkw, name, values[k]) < 0) {
            return -1;
        }
        arguments[sig->varkw] = packed->varkw;
    }
    return 1;
}

int
fj_bind(const FjSignature *sig, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
        PyObject **arguments, FjPackedArgs *packed)
{
    Py_ssize_t direct = nargs < sig->positional ? nargs : sig->positional;
    for (Py_ssize_t i = 0; i < direct; i++) {
        arguments[i] = args[i];
    }
    if (nargs > direct) {
        if (sig->varargs < 0) {
            return 0;
        }
        packed->varargs = fj_tuple_from(args + direct, nargs - direct);
        if (packed->varargs == NULL) {
            return -1;
        }
        arguments[sig->varargs] = packed->varargs;
    }
    if (kwnames != NULL) {
        int result = bind_keywords(sig, args + nargs, kwnames, arguments, packed);
        if (result <= 0) {
            return result;
        }
    }
    for (Py_ssize_t i = 0; i < sig->num_parameters; i++) {
        if (arguments[i] == NULL && (sig->flags[i] & FJ_REQUIRED)) {
            return 0;
        }
    }
    return 1;
}

static PyObject *
signature_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"names", "positional_only", "positional", "varargs",
                               "varkw", "flags",           NULL};
    PyObject *names, *flags;
    Py_ssize_t positional_only, positional;
    int varargs, varkw;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!nnppS:Signature", keywords,
                                     &PyTuple_Type, &names, &positional_only, &positional,
                                     &varargs, &varkw, &flags)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    if (positional_only < 0 || positional < positional_only ||
        positional > count - varargs - varkw || PyBytes_GET_SIZE(flags) != count) {
        return PyErr_Format(PyExc_ValueError,
                            "the counts of a Signature do not fit its names");
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(names, i))) {
            return PyErr_Format(PyExc_TypeError, "the name of a parameter must be a str");
        }
    }
    FjSignature *self = (FjSignature *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->num_parameters = count;
        self->positional_only = positional_only;
        self->positional = positional;
        self->varargs = varargs ? positional : -1;
        self->varkw = varkw ? count - 1 : -1;
        self->names = Py_NewRef(names);
        self->flag_bytes = Py_NewRef(flags);
        self->flags = PyBytes_AS_STRING(flags);
    }
    return (PyObject *)self;
}

static void
signature_dealloc(PyObject *op)
{
    FjSignature *self = (FjSignature *)op;
    Py_XDECREF(self->names);
    Py_XDECREF(self->flag_bytes);
    fj_object_free(op);
}

static PyMemberDef signature_members[] = {
    {"names", T_OBJECT, offsetof(FjSignature, names), READONLY, NULL},
    {"positional", T_PYSSIZET, offsetof(FjSignature, positional), READONLY, NULL},
    {"varargs", T_PYSSIZET, offsetof(FjSignature, varargs), READONLY, NULL},
    {"varkw", T_PYSSIZET, offsetof(FjSignature, varkw), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot signature_slots[] = {
    {Py_tp_doc,
     "Signature(names, positional_only, positional, varargs, varkw, flags)\n--\n\n"
     "The parameters of a function: their names, and a byte of flags per parameter (bind.h).\n"
     "The first `positional` can be given by position, the first `positional_only` only so.\n"
     "`varargs` and `varkw` are true for a function with *args and **kwargs."},
    {Py_tp_new, signature_new},
    {Py_tp_dealloc, signature_dealloc},
    {Py_tp_members, signature_members},
    {0, NULL},
};

PyType_Spec fj_signature_spec = {
    .name = "filterjit._core.Signature",
    .basicsize = sizeof(FjSignature),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = signature_slots,
};
