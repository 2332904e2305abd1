/* The Python types Variant and Output.
 *
 * Python code can run in Variant._arguments and _result (build.c), in Variant._finish
 * (flatten.c, and the `marker` callable), in a variant's repr, in the trace number that JAX
 * passes to fj_output_unflatten, and when references are dropped.  The array of traces moves
 * as it grows: refer to a trace by number while Python code can run. */
#include "call/variant.h"

#include <structmember.h>

#include "walk/build.h"
#include "walk/flatten.h"

FjVariant *
fj_variant_new(FjState *state, FjStructure *function, FjStructure *structure)
{
    FjVariant *self = (FjVariant *)state->variant->tp_alloc(state->variant, 0);
    if (self != NULL) {
        self->function = (FjStructure *)Py_NewRef((PyObject *)function);
        self->structure = (FjStructure *)Py_NewRef((PyObject *)structure);
        self->run_by_hook = 1;
    }
    return self;
}

PyObject *
fj_variant_is_freed(void)
{
    return PyErr_Format(PyExc_RuntimeError, "a jitted function was called while it is freed");
}

/* For a locked variant, after a change of its traces. */
static void
update_run_by_hook(FjVariant *self)
{
    int inspected = 0, raises = 0;
    for (Py_ssize_t i = 0; i < self->num_traces; i++) {
        inspected |= self->traces->items[i].may_raise != FJ_MAY_RAISE_UNKNOWN;
        raises |= self->traces->items[i].may_raise == FJ_MAY_RAISE_YES;
    }
    FJ_STORE_INT(self->run_by_hook, raises || !inspected);
}

/* Doubles the capacity for traces.  0, or -1 with MemoryError. */
static int
grow_traces(FjVariant *self)
{
    Py_ssize_t larger = self->traces_capacity == 0 ? 2 : self->traces_capacity * 2;
    FjTraces *traces = PyMem_Malloc(sizeof(FjTraces) + (size_t)larger * sizeof(FjTrace));
    if (traces == NULL) {
        return fj_raise_no_memory();
    }
    traces->former = self->traces;
    for (Py_ssize_t i = 0; i < self->num_traces; i++) {
        traces->items[i] = self->traces->items[i];
    }
    FJ_STORE_POINTER(self->traces, traces);
    self->traces_capacity = larger;
    return 0;
}

static void
free_memory(FjVariant *self)
{
    while (self->traces != NULL) {
        FjTraces *traces = self->traces;
        self->traces = traces->former;
        PyMem_Free(traces);
    }
    for (int i = 0; i < FJ_LANES; i++) {
        fj_known_free(self->known[i][0]);
    }
}

/* Returns the number of the new trace, or -1 with MemoryError. */
static Py_ssize_t
add_trace(FjVariant *self, FjStructure *structure, FjMayRaise may_raise)
{
    Py_ssize_t trace = -1;
    FJ_LOCK(self);
    if (self->num_traces < self->traces_capacity || grow_traces(self) == 0) {
        trace = self->num_traces;
        self->traces->items[trace] =
            (FjTrace){(FjStructure *)Py_NewRef((PyObject *)structure), may_raise};
        FJ_STORE_SIZE(self->num_traces, trace + 1);
        update_run_by_hook(self);
    }
    FJ_UNLOCK();
    return trace;
}

Py_ssize_t
fj_variant_add_output(FjVariant *self, PyObject *op, FjMayRaise may_raise)
{
    FjStructure *structure = (FjStructure *)op;
    if (Py_TYPE(op) != self->structure->registry->state->structure ||
        !fj_variant_takes_structure(structure)) {
        return fj_raise(PyExc_TypeError,
                        "an output must be a Structure that flatten() returned");
    }
    return add_trace(self, structure, may_raise);
}

/* Checks a trace number.  -1 with an error, for example if a different variant's. */
static Py_ssize_t
trace_of(const FjVariant *self, PyObject *number)
{
    Py_ssize_t trace = PyLong_AsSsize_t(number);
    if (trace == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (trace < 0 || trace >= FJ_LOAD_SIZE(self->num_traces)) {
        return fj_raise(PyExc_RuntimeError, "an Output does not belong to its variant");
    }
    return trace;
}

/* _may_raise(trace) -> bool or None */
static PyObject *
variant_may_raise(PyObject *op, PyObject *number)
{
    FjVariant *self = (FjVariant *)op;
    Py_ssize_t trace = trace_of(self, number);
    if (trace < 0) {
        return NULL;
    }
    FjMayRaise may_raise = fj_variant_trace_may_raise(self, trace);
    return may_raise == FJ_MAY_RAISE_UNKNOWN ? Py_NewRef(Py_None) : PyBool_FromLong(may_raise);
}

static PyObject *
variant_set_may_raise(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    FjVariant *self = (FjVariant *)op;
    if (nargs != 2) {
        return PyErr_Format(PyExc_TypeError, "_set_may_raise takes (trace, may_raise)");
    }
    Py_ssize_t trace = trace_of(self, args[0]);
    int may_raise = trace < 0 ? -1 : PyObject_IsTrue(args[1]);
    if (may_raise < 0) {
        return NULL;
    }
    FJ_LOCK(self);
    FJ_STORE_INT(self->traces->items[trace].may_raise, may_raise);
    update_run_by_hook(self);
    FJ_UNLOCK();
    Py_RETURN_NONE;
}

/* ---- Output: the Python type, and the pytree node ---- */

FjStructure *
fj_variant_output_structure(const FjVariant *self, PyObject *op)
{
    const FjOutput *output = (FjOutput *)op;
    if (FJ_UNLIKELY(Py_TYPE(op) != self->structure->registry->state->output)) {
        /* Always NULL.  In this form, hits need no stack frame. */
        return (FjStructure *)PyErr_Format(
            PyExc_TypeError, "a variant's callable returned `%.200s`, not Output",
            Py_TYPE(op)->tp_name);
    }
    FjStructure *structure = output->structure;
    if (structure == NULL && output->trace >= 0 &&
        output->trace < FJ_LOAD_SIZE(self->num_traces)) {
        const FjTraces *traces = FJ_LOAD_POINTER(self->traces);
        structure = traces->items[output->trace].structure;
    }
    if (structure == NULL || structure->open_leaves > PyTuple_GET_SIZE(output->arrays)) {
        return (FjStructure *)PyErr_Format(PyExc_RuntimeError,
                                           "an Output does not belong to its variant");
    }
    return structure;
}

PyObject *
fj_output_flatten(PyObject *module, PyObject *op)
{
    FjState *state = PyModule_GetState(module);
    if (Py_TYPE(op) != state->output) {
        return PyErr_Format(PyExc_TypeError, "expected an Output");
    }
    FjOutput *self = (FjOutput *)op;
    if (self->trace < 0 && self->variant != NULL) {
        self->trace = add_trace(self->variant, self->structure, FJ_MAY_RAISE_UNKNOWN);
        if (self->trace < 0) {
            return NULL;
        }
    }
    return self->given_trace != NULL ? PyTuple_Pack(2, self->arrays, self->given_trace)
                                     : Py_BuildValue("(On)", self->arrays, self->trace);
}

PyObject *
fj_times_as_dict(const FjTimes *times)
{
    return Py_BuildValue("{sKsKsKsKsKsK}", "hits", FJ_LOAD_COUNT(times->hits), "hit",
                         FJ_LOAD_COUNT(times->hit), "waited", FJ_LOAD_COUNT(times->waited),
                         "runs", FJ_LOAD_COUNT(times->runs), "around",
                         FJ_LOAD_COUNT(times->around), "ran", FJ_LOAD_COUNT(times->ran));
}

PyObject *
fj_times_get(PyObject *object, void *offset)
{
    return fj_times_as_dict((FjTimes *)((char *)object + (size_t)offset));
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
        return PyErr_Format(PyExc_TypeError, "output_unflatten takes (trace, arrays)");
    }
    Py_ssize_t trace = PyLong_AsSsize_t(args[0]);
    if (trace == -1 && PyErr_Occurred()) {
        return NULL;
    }
    /* JAX's C++ passes a tuple. */
    PyObject *output = fj_output_new(state, fj_tuple_of(args[1]), trace);
    if (output != NULL && !PyLong_CheckExact(args[0])) {
        ((FjOutput *)output)->given_trace = Py_NewRef(args[0]);
    }
    return output;
}

#define OUTPUT_REFERENCES(WHAT)                                                               \
    WHAT(self->arrays);                                                                       \
    WHAT(self->variant);                                                                      \
    WHAT(self->structure);                                                                    \
    WHAT(self->given_trace);

FJ_GC_TYPE(output, FjOutput, OUTPUT_REFERENCES, 0, (void)0, (void)0)

static PyMemberDef output_members[] = {
    {"arrays", T_OBJECT, offsetof(FjOutput, arrays), READONLY,
     "A tuple of the arrays of the result."},
    {"structure", T_OBJECT, offsetof(FjOutput, structure), READONLY,
     "The Structure of the result, or None after JAX has flattened the Output."},
    {"trace", T_PYSSIZET, offsetof(FjOutput, trace), READONLY,
     "The number of its trace, or -1 if it has none yet."},
    {"waited", T_ULONGLONG, offsetof(FjOutput, waited), 0,
     "The nanoseconds of waiting for a program that can raise."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot output_slots[] = {
    {Py_tp_doc, "The result of a Variant's callable: a pytree node, private to filterjit."},
    {Py_tp_traverse, output_traverse},
    {Py_tp_dealloc, output_dealloc},
    {Py_tp_members, output_members},
    {0, NULL},
};

FJ_SPEC(fj_output_spec, "filterjit._core.Output", sizeof(FjOutput), output_slots,
        Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* ---- calls and traces ---- */

static PyObject *
variant_arguments(PyObject *op, PyObject *arrays)
{
    FjVariant *self = (FjVariant *)op;
    Py_ssize_t expected = self->function->open_leaves + self->structure->open_leaves;
    if (!PyTuple_Check(arrays) || PyTuple_GET_SIZE(arrays) != expected) {
        return PyErr_Format(PyExc_ValueError, "this variant takes %zd arrays", expected);
    }
    PyObject *const *items = ((PyTupleObject *)arrays)->ob_item;
    PyObject *function = fj_build_tree(self->function, items);
    if (function == NULL) {
        return NULL;
    }
    return Py_BuildValue(
        "(NN)", function,
        fj_build_arguments(self->structure, items + self->function->open_leaves));
}

/* Running calls own the variant, so it keeps the callables that they might be running. */
static PyObject *
variant_switch(PyObject *op, PyObject *callable)
{
    FjVariant *self = (FjVariant *)op;
    int failed = 0;
    if (!PyCallable_Check(callable)) {
        return PyErr_Format(PyExc_TypeError, "the `call` of a variant must be callable");
    }
    FJ_LOCK(op);
    FJ_STORE_INT(self->was_switched, 1);
    PyObject *before = self->call;
    if (before != callable) {
        if (self->former == NULL) {
            self->former = PyList_New(0);
        }
        failed = self->former == NULL ||
                 (before != NULL && PyList_Append(self->former, before) < 0);
        if (!failed) {
            FJ_STORE_POINTER(self->call, Py_NewRef(callable));
            Py_XDECREF(before);
        }
    }
    FJ_UNLOCK();
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
variant_get_call(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *call;
    FJ_LOCKED(op, call = Py_XNewRef(((FjVariant *)op)->call));
    return call == NULL ? Py_NewRef(Py_None) : call;
}

static PyObject *
variant_finish(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        return PyErr_Format(PyExc_TypeError, "_finish takes (tree, marker)");
    }
    FjRegistry *registry = ((FjVariant *)op)->structure->registry;
    FjOutput *output = NULL;
    FJ_LEAFBUF(arrays, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_flatten_tree(registry, args[0], &arrays);
    if (structure != NULL &&
        (arrays.count > 0 || fj_leafbuf_steal(&arrays, PyObject_CallNoArgs(args[1])) == 0)) {
        output = (FjOutput *)fj_output_new(registry->state, fj_leafbuf_as_tuple(&arrays), -1);
    }
    if (output != NULL) {
        output->variant = (FjVariant *)Py_NewRef(op);
        output->structure = (FjStructure *)Py_NewRef((PyObject *)structure);
    }
    fj_leafbuf_clear(&arrays);
    Py_XDECREF(structure);
    return (PyObject *)output;
}

static PyObject *
variant_result(PyObject *op, PyObject *value)
{
    FjStructure *structure = fj_variant_output_structure((FjVariant *)op, value);
    return structure == NULL
               ? NULL
               : fj_build_tree(structure,
                               ((PyTupleObject *)((FjOutput *)value)->arrays)->ob_item);
}

static PyObject *
variant_get_outputs(PyObject *op, void *Py_UNUSED(closure))
{
    FjVariant *self = (FjVariant *)op;
    Py_ssize_t count = FJ_LOAD_SIZE(self->num_traces);
    const FjTraces *traces = FJ_LOAD_POINTER(self->traces);
    PyObject *outputs = PyTuple_New(count);
    for (Py_ssize_t i = 0; outputs != NULL && i < count; i++) {
        PyTuple_SET_ITEM(outputs, i, Py_NewRef((PyObject *)traces->items[i].structure));
    }
    return outputs;
}

/* Keeps the Structures, like a tuple its items: other objects break the cycles. */
static int
variant_clear(PyObject *op)
{
    FjVariant *self = (FjVariant *)op;
    Py_CLEAR(self->call);
    Py_CLEAR(self->former);
    Py_CLEAR(self->record);
    Py_CLEAR(self->programs);
    return 0;
}

#define VARIANT_REFERENCES(WHAT)                                                              \
    WHAT(self->function);                                                                     \
    WHAT(self->structure);                                                                    \
    WHAT(self->call);                                                                         \
    WHAT(self->former);                                                                       \
    WHAT(self->record);                                                                       \
    WHAT(self->programs);                                                                     \
    for (Py_ssize_t i = 0; i < self->num_traces; i++) {                                       \
        WHAT(self->traces->items[i].structure);                                               \
    }

FJ_GC_TYPE(variant, FjVariant, VARIANT_REFERENCES, 0, (void)0, free_memory(self))

static PyMethodDef variant_methods[] = {
    FJ_METHOD("_arguments", variant_arguments, METH_O, "($self, arrays, /)",
              "Builds the function and its arguments from a tuple of arrays.\n\n"
              "Returns (function, arguments). The arguments are a list with one item per\n"
              "parameter. The Registry stands for an argument that was not given."),
    FJ_METHOD("_finish", variant_finish, METH_FASTCALL, "($self, tree, marker, /)",
              "Flattens `tree`, the function's result in a trace. Returns an Output.\n\n"
              "If the result contains no arrays, the Output contains the array that marker()\n"
              "returns."),
    FJ_METHOD("_result", variant_result, METH_O, "($self, output, /)",
              "Builds the result of the function from `output`, an Output."),
    FJ_METHOD("_may_raise", variant_may_raise, METH_O, "($self, trace, /)",
              "Returns True if a trace's program can raise while it runs, False, or None if\n"
              "unknown."),
    FJ_METHOD("_set_may_raise", variant_set_may_raise, METH_FASTCALL,
              "($self, trace, may_raise, /)",
              "Stores `may_raise`: True if the program of `trace` can raise while it runs."),
    FJ_METHOD("_switch", variant_switch, METH_O, "($self, callable, /)",
              "Makes `callable` the variant's `_call`, which keeps the former ones alive."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef variant_members[] = {
    {"function", T_OBJECT, offsetof(FjVariant, function), READONLY,
     "The Structure of the function itself."},
    {"structure", T_OBJECT, offsetof(FjVariant, structure), READONLY,
     "The Structure of the arguments."},
    {"num_traces", T_PYSSIZET, offsetof(FjVariant, num_traces), READONLY,
     "The number of traces."},
    {"_record", T_OBJECT, offsetof(FjVariant, record), 0, "A listener's data, or None."},
    {"_programs", T_OBJECT, offsetof(FjVariant, programs), 0,
     "The Programs of the package _call, or None in a compiled function."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjVariant, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef variant_getset[] = {
    {"_call", variant_get_call, NULL, "The callable, or None until it is compiled.", NULL},
    {"hits", fj_get_total, NULL, "The number of calls that ran a program and didn't trace.",
     (void *)offsetof(FjVariant, hits)},
    {"_times", fj_times_get, NULL,
     "The times of hits while the Cache was timed: see FjTimes in csrc/call/variant.h.",
     (void *)offsetof(FjVariant, times)},
    {"outputs", variant_get_outputs, NULL, "A tuple of the Structures of its traces' results.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *
variant_repr(PyObject *op)
{
    FjVariant *self = (FjVariant *)op;
    return PyUnicode_FromFormat("<Variant of %R, traces: %zd, hits: %llu>", self->structure,
                                self->num_traces, fj_total(&self->hits));
}

static PyType_Slot variant_slots[] = {
    {Py_tp_doc,
     "The compiled callable of one static structure, and the results of its traces.\n\n"
     "`FilterJit.variants` returns a list of them.\n"},
    {Py_tp_repr, variant_repr},
    {Py_tp_traverse, variant_traverse},
    {Py_tp_clear, variant_clear},
    {Py_tp_dealloc, variant_dealloc},
    {Py_tp_methods, variant_methods},
    {Py_tp_members, variant_members},
    {Py_tp_getset, variant_getset},
    {0, NULL},
};

FJ_SPEC(fj_variant_spec, "filterjit.types.Variant", sizeof(FjVariant), variant_slots,
        Py_TPFLAGS_DISALLOW_INSTANTIATION);
