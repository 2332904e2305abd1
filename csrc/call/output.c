/* The Python type Output.
 *
 * Python code can run where references are dropped, and in the numbers that JAX passes back.
 */
#include "call/variant.h"

#include <structmember.h>

FjStructure *
fj_variant_output_structure(const FjVariant *self, PyObject *op)
{
    const FjOutput *output = (FjOutput *)op;
    if (FJ_UNLIKELY(Py_TYPE(op) != self->structure->registry->state->output)) {
        /* Always NULL, as below: a hit needs no frame on the stack for these. */
        return (FjStructure *)PyErr_Format(
            PyExc_TypeError, "a variant's callable returned `%.200s`, not Output",
            Py_TYPE(op)->tp_name);
    }
    FjStructure *structure = output->structure;
    if (structure == NULL && output->trace >= 0 &&
        output->trace < FJ_LOAD_SIZE(self->num_traces)) {
        const FjTrace *traces = FJ_LOAD_POINTER(self->traces);
        structure = traces[output->trace].structure;
    }
    if (structure == NULL || structure->open_leaves > PyTuple_GET_SIZE(output->arrays)) {
        return (FjStructure *)PyErr_Format(PyExc_RuntimeError,
                                           "an Output does not belong to its variant");
    }
    return structure;
}

/* ---- Output: the Python type, and the pytree node ---- */

PyObject *
fj_output_flatten(PyObject *module, PyObject *op)
{
    FjState *state = PyModule_GetState(module);
    if (Py_TYPE(op) != state->output) {
        PyErr_SetString(PyExc_TypeError, "expected an Output");
        return NULL;
    }
    FjOutput *self = (FjOutput *)op;
    if (self->trace < 0 && self->variant != NULL) {
        self->trace =
            fj_variant_add_trace(self->variant, self->structure, FJ_MAY_RAISE_UNKNOWN);
        if (self->trace < 0) {
            return NULL;
        }
    }
    return self->given_trace != NULL ? PyTuple_Pack(2, self->arrays, self->given_trace)
                                     : Py_BuildValue("(On)", self->arrays, self->trace);
}

PyObject *
fj_output_new(FjState *state, PyObject *arrays, Py_ssize_t trace)
{
    FjOutput *self =
        arrays == NULL ? NULL : (FjOutput *)state->output->tp_alloc(state->output, 0);
    if (self == NULL) {
        Py_XDECREF(arrays);
        return NULL;
    }
    self->arrays = arrays;
    self->trace = trace;
    return (PyObject *)self;
}

PyObject *
fj_output_unflatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    FjState *state = PyModule_GetState(module);
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "output_unflatten takes (trace, arrays)");
        return NULL;
    }
    Py_ssize_t trace = PyLong_AsSsize_t(args[0]);
    if (trace == -1 && PyErr_Occurred()) {
        return NULL;
    }
    /* It is a tuple already, from JAX's C++. */
    PyObject *output = fj_output_new(state, fj_tuple_of(args[1]), trace);
    if (output != NULL && !PyLong_CheckExact(args[0])) {
        ((FjOutput *)output)->given_trace = Py_NewRef(args[0]);
    }
    return output;
}

static int
output_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjOutput *self = (FjOutput *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->arrays);
    Py_VISIT(self->variant);
    Py_VISIT(self->structure);
    Py_VISIT(self->given_trace);
    return 0;
}

static void
output_dealloc(PyObject *op)
{
    FjOutput *self = (FjOutput *)op;
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->arrays);
    Py_XDECREF(self->variant);
    Py_XDECREF(self->structure);
    Py_XDECREF(self->given_trace);
    fj_object_free(op);
}

static PyMemberDef output_members[] = {
    {"arrays", T_OBJECT, offsetof(FjOutput, arrays), READONLY,
     "The arrays of the result, a tuple."},
    {"structure", T_OBJECT, offsetof(FjOutput, structure), READONLY,
     "The Structure of the result, until JAX has flattened it; then None."},
    {"trace", T_PYSSIZET, offsetof(FjOutput, trace), READONLY,
     "The number of the trace that it comes from, or -1 if it has none yet."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot output_slots[] = {
    {Py_tp_doc,
     "What the callable of a Variant returns: a pytree node, private to filterjit."},
    {Py_tp_traverse, output_traverse},
    {Py_tp_dealloc, output_dealloc},
    {Py_tp_members, output_members},
    {0, NULL},
};

PyType_Spec fj_output_spec = {
    .name = "filterjit._core.Output",
    .basicsize = sizeof(FjOutput),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = output_slots,
};
