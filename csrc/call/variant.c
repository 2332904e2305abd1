/* Variants and their outputs.
 *
 * Python code can run in Variant.arguments (build.c) and Variant.finish (flatten.c), both
 * called while JAX traces, and wherever references are dropped.  The array of traces moves as
 * it grows, so a trace is named by its number across anything that can run Python.
 */
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
    }
    return self;
}

/* The number of a new trace that returned `structure`, or -1 with MemoryError. */
static Py_ssize_t
add_trace(FjVariant *self, FjStructure *structure, FjMayRaise may_raise)
{
    if (self->count == self->capacity) {
        Py_ssize_t capacity = self->capacity == 0 ? 2 : self->capacity * 2;
        FjTrace *traces = PyMem_Realloc(self->traces, (size_t)capacity * sizeof(FjTrace));
        if (traces == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->traces = traces;
        self->capacity = capacity;
    }
    self->traces[self->count].structure = (FjStructure *)Py_NewRef((PyObject *)structure);
    self->traces[self->count].may_raise = may_raise;
    if (may_raise != FJ_MAY_RAISE_NO) {
        self->alerts |= FJ_ALERT_RAISES;
    }
    return self->count++;
}

int
fj_variant_set_outputs(FjVariant *self, PyObject *outputs, FjMayRaise may_raise)
{
    PyTypeObject *type = self->structure->registry->state->structure;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); i++) {
        FjStructure *structure = (FjStructure *)PyTuple_GET_ITEM(outputs, i);
        if (Py_TYPE(structure) != type || structure->every_leaf ||
            structure->nodes[0].code == FJ_ARGUMENTS) {
            PyErr_SetString(PyExc_TypeError, "outputs are structures of `flatten`");
            return -1;
        }
        if (add_trace(self, structure, may_raise) < 0) {
            return -1;
        }
    }
    return 0;
}

void
fj_variant_set_may_raise(FjVariant *self, Py_ssize_t trace, FjMayRaise may_raise)
{
    self->traces[trace].may_raise = may_raise;
    self->alerts &= ~(unsigned)FJ_ALERT_RAISES;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        if (self->traces[i].may_raise != FJ_MAY_RAISE_NO) {
            self->alerts |= FJ_ALERT_RAISES;
        }
    }
}

FjStructure *
fj_variant_output_structure(const FjVariant *self, const FjOutput *output)
{
    FjStructure *structure = output->structure;
    if (structure == NULL && output->trace >= 0 && output->trace < self->count) {
        structure = self->traces[output->trace].structure;
    }
    if (structure == NULL || structure->open_leaves > PyTuple_GET_SIZE(output->arrays)) {
        PyErr_SetString(PyExc_RuntimeError, "an Output does not belong to its variant");
        return NULL;
    }
    return structure;
}

/* arguments(arrays) -> (function, [argument or missing, ...]) */
static PyObject *
variant_arguments(PyObject *op, PyObject *arrays)
{
    FjVariant *self = (FjVariant *)op;
    Py_ssize_t expected = self->function->open_leaves + self->structure->open_leaves;
    if (!PyTuple_Check(arrays) || PyTuple_GET_SIZE(arrays) != expected) {
        PyErr_Format(PyExc_ValueError, "this variant takes %zd arrays", expected);
        return NULL;
    }
    PyObject *const *items = ((PyTupleObject *)arrays)->ob_item;
    PyObject *function = fj_build_tree(self->function, items);
    if (function == NULL) {
        return NULL;
    }
    PyObject *arguments =
        fj_build_arguments(self->structure, items + self->function->open_leaves);
    return arguments == NULL ? (Py_DECREF(function), NULL)
                             : Py_BuildValue("(NN)", function, arguments);
}

/* ---- what is deferred ---- */

/* defer(callable) */
static PyObject *
variant_defer(PyObject *op, PyObject *callable)
{
    FjVariant *self = (FjVariant *)op;
    if (self->deferred_count == self->deferred_capacity) {
        Py_ssize_t capacity = self->deferred_capacity + 4;
        FjDeferred *deferred =
            PyMem_Realloc(self->deferred, (size_t)capacity * sizeof(FjDeferred));
        if (deferred == NULL) {
            return PyErr_NoMemory();
        }
        self->deferred = deferred;
        self->deferred_capacity = capacity;
    }
    self->deferred[self->deferred_count++] =
        (FjDeferred){PyThread_get_thread_ident(), Py_NewRef(callable)};
    self->alerts |= FJ_ALERT_DEFERRED;
    Py_RETURN_NONE;
}

Py_ssize_t
fj_variant_count_deferred(const FjVariant *self)
{
    unsigned long thread = PyThread_get_thread_ident();
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < self->deferred_count; i++) {
        count += self->deferred[i].thread == thread;
    }
    return count;
}

/* Takes out the last that this thread has deferred; NULL where that would be one of the first
 * `kept`. */
static PyObject *
take_deferred(FjVariant *self, Py_ssize_t kept)
{
    if (fj_variant_count_deferred(self) <= kept) {
        return NULL;
    }
    Py_ssize_t last = self->deferred_count - 1;
    while (self->deferred[last].thread != PyThread_get_thread_ident()) {
        last--;
    }
    PyObject *callable = self->deferred[last].callable;
    for (Py_ssize_t i = last + 1; i < self->deferred_count; i++) {
        self->deferred[i - 1] = self->deferred[i];
    }
    if (--self->deferred_count == 0) {
        self->alerts &= ~(unsigned)FJ_ALERT_DEFERRED;
    }
    return callable;
}

PyObject *
fj_variant_run_deferred(FjVariant *self, Py_ssize_t kept, PyObject *result)
{
    PyObject *exception = fj_compat_take_exception();
    PyObject *callable;
    while ((callable = take_deferred(self, kept)) != NULL) {
        for (int attempt = 0; attempt < 2; attempt++) {
            PyObject *answer = PyObject_CallNoArgs(callable);
            if (answer != NULL) {
                Py_DECREF(answer);
                break;
            }
            if (!PyErr_ExceptionMatches(PyExc_Exception)) {
                Py_XSETREF(exception, fj_compat_take_exception());
                Py_CLEAR(result);
            }
            else if (attempt > 0) {
                PyErr_WriteUnraisable((PyObject *)self);
            }
            else {
                PyErr_Clear();
            }
        }
        Py_DECREF(callable);
    }
    fj_compat_give_exception(exception);
    return result;
}

/* run_deferred(kept=0) */
static PyObject *
variant_run_deferred(PyObject *op, PyObject *args)
{
    Py_ssize_t kept = 0;
    if (!PyArg_ParseTuple(args, "|n:run_deferred", &kept)) {
        return NULL;
    }
    return fj_variant_run_deferred((FjVariant *)op, kept, Py_NewRef(Py_None));
}

static PyObject *
variant_get_num_deferred(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(fj_variant_count_deferred((FjVariant *)op));
}

/* finish(tree, marker) -> Output */
static PyObject *
variant_finish(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "finish takes (tree, marker)");
        return NULL;
    }
    PyObject *tree = args[0];
    FjVariant *self = (FjVariant *)op;
    FjRegistry *registry = self->structure->registry;
    FjOutput *output = NULL;
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays;
    fj_leafbuf_init(&arrays, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_flatten_tree(registry, tree, &arrays);
    if (structure == NULL) {
        goto done;
    }
    if (arrays.count == 0) {
        PyObject *marker = PyObject_CallNoArgs(args[1]);
        int result = marker == NULL ? -1 : fj_leafbuf_push(&arrays, marker);
        Py_XDECREF(marker);
        if (result < 0) {
            goto done;
        }
    }
    output = (FjOutput *)registry->state->output->tp_alloc(registry->state->output, 0);
    if (output == NULL) {
        goto done;
    }
    output->trace = -1;
    output->variant = (FjVariant *)Py_NewRef(op);
    output->structure = (FjStructure *)Py_NewRef((PyObject *)structure);
    output->arrays = fj_leafbuf_as_tuple(&arrays);
    if (output->arrays == NULL) {
        Py_CLEAR(output);
    }
done:
    fj_leafbuf_clear(&arrays);
    Py_XDECREF(structure);
    return (PyObject *)output;
}

/* result(output) -> tree */
static PyObject *
variant_result(PyObject *op, PyObject *value)
{
    FjVariant *self = (FjVariant *)op;
    FjOutput *output = (FjOutput *)value;
    if (Py_TYPE(value) != self->structure->registry->state->output) {
        PyErr_SetString(PyExc_TypeError, "expected an Output");
        return NULL;
    }
    FjStructure *structure = fj_variant_output_structure(self, output);
    if (structure == NULL) {
        return NULL;
    }
    return fj_build_tree(structure, ((PyTupleObject *)output->arrays)->ob_item);
}

static PyObject *
variant_get_outputs(PyObject *op, void *Py_UNUSED(closure))
{
    FjVariant *self = (FjVariant *)op;
    Py_ssize_t count = self->count;
    PyObject *outputs = PyTuple_New(count);
    for (Py_ssize_t i = 0; outputs != NULL && i < count; i++) {
        PyTuple_SET_ITEM(outputs, i, Py_NewRef((PyObject *)self->traces[i].structure));
    }
    return outputs;
}

static int
variant_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjVariant *self = (FjVariant *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->function);
    Py_VISIT(self->structure);
    Py_VISIT(self->call);
    for (Py_ssize_t i = 0; i < self->deferred_count; i++) {
        Py_VISIT(self->deferred[i].callable);
    }
    Py_VISIT(self->record);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_VISIT(self->traces[i].structure);
    }
    return 0;
}

static int
variant_clear(PyObject *op)
{
    FjVariant *self = (FjVariant *)op;
    Py_CLEAR(self->call);
    while (self->deferred_count > 0) {
        Py_DECREF(self->deferred[--self->deferred_count].callable);
    }
    Py_CLEAR(self->record);
    return 0;
}

static void
variant_dealloc(PyObject *op)
{
    FjVariant *self = (FjVariant *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    variant_clear(op);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_DECREF(self->traces[i].structure);
    }
    PyMem_Free(self->traces);
    PyMem_Free(self->deferred);
    fj_memo_free(self->memo);
    Py_XDECREF(self->function);
    Py_XDECREF(self->structure);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef variant_methods[] = {
    {"arguments", variant_arguments, METH_O,
     "arguments(arrays) -> (function, arguments): both built from a tuple of arrays; in the\n"
     "place of an argument that was not given stands the registry"},
    {"finish", (PyCFunction)(void (*)(void))variant_finish, METH_FASTCALL,
     "finish(tree, marker) -> Output: the function's result, taken apart; where it holds no\n"
     "arrays, one that marker() makes"},
    {"result", variant_result, METH_O, "result(output) -> tree: the function's result"},
    {"defer", variant_defer, METH_O,
     "defer(callable): called without arguments when this thread's call under way is over,\n"
     "whatever comes; once more if it fails, since it may have been interrupted"},
    {"run_deferred", variant_run_deferred, METH_VARARGS,
     "run_deferred(kept=0): what a trace outside of a call has to do at its end; `kept` is\n"
     "what `num_deferred` was before it"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef variant_members[] = {
    {"function", T_OBJECT, offsetof(FjVariant, function), READONLY,
     "Structure of the function itself"},
    {"structure", T_OBJECT, offsetof(FjVariant, structure), READONLY,
     "Structure of the arguments"},
    {"call", T_OBJECT, offsetof(FjVariant, call), READONLY,
     "the compiled callable; None until there is one"},
    {"num_traces", T_PYSSIZET, offsetof(FjVariant, count), READONLY,
     "how often it has been traced"},
    {"hits", T_ULONGLONG, offsetof(FjVariant, hits), READONLY,
     "calls that traced nothing and returned"},
    {"hit_time", T_ULONGLONG, offsetof(FjVariant, hit_time), READONLY,
     "nanoseconds that hits took until they returned, where the Cache is timed"},
    {"record", T_OBJECT, offsetof(FjVariant, record), 0,
     "whatever the Python side keeps here"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjVariant, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef variant_getset[] = {
    {"outputs", variant_get_outputs, NULL,
     "the structures of what its traces returned, a tuple", NULL},
    {"num_deferred", variant_get_num_deferred, NULL, "how much this thread has deferred",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot variant_type_slots[] = {
    {Py_tp_doc, "The compiled callable of one static structure."},
    {Py_tp_traverse, variant_traverse},
    {Py_tp_clear, variant_clear},
    {Py_tp_dealloc, variant_dealloc},
    {Py_tp_methods, variant_methods},
    {Py_tp_members, variant_members},
    {Py_tp_getset, variant_getset},
    {0, NULL},
};

PyType_Spec fj_variant_spec = {
    .name = "filterjit._core.Variant",
    .basicsize = sizeof(FjVariant),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = variant_type_slots,
};

/* ---- Output ---- */

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
        self->trace = add_trace(self->variant, self->structure, FJ_MAY_RAISE_UNKNOWN);
        if (self->trace < 0) {
            return NULL;
        }
    }
    return Py_BuildValue("(On)", self->arrays, self->trace);
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
    PyObject *arrays = PySequence_Tuple(args[1]); /* a tuple already, from JAX's C++ */
    if (arrays == NULL) {
        return NULL;
    }
    FjOutput *self = (FjOutput *)state->output->tp_alloc(state->output, 0);
    if (self == NULL) {
        Py_DECREF(arrays);
        return NULL;
    }
    self->arrays = arrays;
    self->trace = trace;
    return (PyObject *)self;
}

static int
output_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjOutput *self = (FjOutput *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->arrays);
    Py_VISIT(self->variant);
    Py_VISIT(self->structure);
    return 0;
}

static void
output_dealloc(PyObject *op)
{
    FjOutput *self = (FjOutput *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->arrays);
    Py_XDECREF(self->variant);
    Py_XDECREF(self->structure);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMemberDef output_members[] = {
    {"arrays", T_OBJECT, offsetof(FjOutput, arrays), READONLY, "the arrays of the result"},
    {"trace", T_PYSSIZET, offsetof(FjOutput, trace), READONLY, "number of the trace, or -1"},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot output_slots[] = {
    {Py_tp_doc, "What a variant's callable returns: a pytree node, private to filterjit."},
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
