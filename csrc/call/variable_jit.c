/* The Python type VariableJit: a FilterJit that updates Variables of Flax NNX.  A call
 *
 *   1. checks the guards: attributes that must have certain values, such as JAX's current
 *      trace, which must be at the top level;
 *   2. calls the FilterJit, which returns (result, indices, values).  Matching or flattening
 *      the arguments collects their Variables, and a hook checks that they can be updated
 *      (variables.c);
 *   3. stores the values in the Variables with these indices.  If a Variable holds a number
 *      or a NumPy array, which upstream converts to a JAX array, calls `_settle` to do so.
 *
 * If the FilterJit returns (result, None, ...), `_finish` completes the call.  If a guard or
 * the hook rejects the call, or a trace raises `escape` before it has run the user's function,
 * `_hand_over` makes the call in a different way.  A Python subclass has both methods.
 *
 * A call changes no state of the VariableJit that other calls or threads use, except `reason`
 * and `states`.  It rereads both after Python code has run, and locks the object for them.
 *
 * Python code can run anywhere in this file. */
#include "call/call.h"

#include <structmember.h>

#include "base/state.h"
#include "walk/flatten.h"
#include "call/filter_jit.h"
#include "call/variables.h"

/* As many objects as fit on the stack, besides the FilterJit's 8 KiB. */
#define OBJECTS_INLINE 257

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjFilterJit *inner;
    FjVariableRules rules;
    PyObject *guards; /* tuple of (object, attribute name, value, reason) */
    PyObject *escape; /* an exception class */
    PyObject *reason; /* why every call is handed over, or NULL */
    FjLeafBuf states; /* TraceStates: see fj_variables_check_states */
    PyObject *states_inline[2];
    PyObject *weakrefs;
} FjVariableJit;

/* Calls self.name(first, args, kwargs). */
static inline PyObject *
call_method(FjVariableJit *self, const char *name, PyObject *first, PyObject *const *args,
            Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *given = fj_bind_pack(args, nargs, kwnames);
    PyObject *result = given == NULL ? NULL
                                     : PyObject_CallMethod((PyObject *)self, name, "OOO",
                                                           first, PyTuple_GET_ITEM(given, 0),
                                                           PyTuple_GET_ITEM(given, 1));
    Py_XDECREF(given);
    return result;
}

/* 1 if all guards have their values, 0 and a new str in `*reason`, or -1 with an error. */
static int
pass_guards(FjVariableJit *self, PyObject **reason)
{
    PyObject *guards = self->guards;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(guards); i++) {
        PyObject *guard = PyTuple_GET_ITEM(guards, i);
        PyObject *value =
            PyObject_GetAttr(PyTuple_GET_ITEM(guard, 0), PyTuple_GET_ITEM(guard, 1));
        if (value == NULL) {
            return -1;
        }
        int passes = value == PyTuple_GET_ITEM(guard, 2);
        Py_DECREF(value);
        if (FJ_UNLIKELY(!passes)) {
            *reason = Py_NewRef(PyTuple_GET_ITEM(guard, 3));
            return 0;
        }
    }
    return 1;
}

typedef struct {
    FjArgumentsCheck check; /* the first member */
    FjVariableJit *self;
    Py_ssize_t num_variables; /* in the arguments: the first of the check's objects */
    int unsettled;            /* a Variable's value must become a JAX array */
    PyObject *reason;         /* owned: why the call is handed over, or NULL */
    PyObject *stack[OBJECTS_INLINE];
} VariableCall;

/* Turns the current exception into a reason to hand the call over: upstream raises its own.
 * Not a RecursionError: in an endless recursion, two attempts per call would take forever. */
static int
hand_over_error(VariableCall *call)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception) ||
        PyErr_ExceptionMatches(PyExc_RecursionError) ||
        PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return -1;
    }
    PyErr_Clear();
    Py_XSETREF(call->reason, PyUnicode_FromString("the arguments cannot be walked"));
    return call->reason == NULL ? -1 : 0;
}

/* An FjArgumentsCheck: checks that the Variables in the arguments can be updated. */
static int
accept(FjArgumentsCheck *check, const FjStructure *structure, PyObject *const *arrays,
       int was_flattened)
{
    VariableCall *call = (VariableCall *)check;
    const FjVariableRules *rules = &call->self->rules;
    int result = structure == NULL ? -1 : 1;
    if (result > 0 && was_flattened) {
        result =
            fj_variables_check_structure(rules, structure, &check->objects, 0, &call->reason);
    }
    if (result > 0) {
        result = fj_variables_check_leaves(rules, structure, arrays, &call->unsettled,
                                           &call->reason);
    }
    if (result > 0) {
        FJ_LOCKED(call->self, result = fj_variables_check_states(
                                  structure, &check->objects, &call->self->states,
                                  &call->num_variables, &call->reason));
    }
    return FJ_UNLIKELY(result < 0) ? hand_over_error(call) : result;
}

/* Stores the new values in the Variables.  0, or -1 with an error and nothing stored. */
static int
store(VariableCall *call, PyObject *indices, PyObject *values)
{
    Py_ssize_t count = PyTuple_GET_SIZE(values);
    const char *bytes = PyBytes_AS_STRING(indices);
    if (PyBytes_GET_SIZE(indices) != count * (Py_ssize_t)sizeof(uint32_t)) {
        return fj_raise(PyExc_SystemError, "VariableJit: not as many indices as values");
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t index;
        memcpy(&index, bytes + (size_t)i * sizeof index, sizeof index);
        if ((Py_ssize_t)index >= call->num_variables) {
            return fj_raise(PyExc_SystemError, "VariableJit: the arguments have changed");
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t index;
        memcpy(&index, bytes + (size_t)i * sizeof index, sizeof index);
        fj_compat_slot_set(call->check.objects.items[index], call->self->rules.raw_value,
                           Py_NewRef(PyTuple_GET_ITEM(values, i)));
    }
    return 0;
}

/* Completes a call with the FilterJit's result (stolen). */
static PyObject *
complete(VariableCall *call, PyObject *answer, PyObject *const *args, Py_ssize_t nargs,
         PyObject *kwnames)
{
    PyObject *result = NULL;
    if (!PyTuple_CheckExact(answer) || PyTuple_GET_SIZE(answer) != 3) {
        PyErr_SetString(PyExc_TypeError, "the FilterJit must return a tuple of three");
    }
    else if (FJ_LIKELY(PyBytes_CheckExact(PyTuple_GET_ITEM(answer, 1)) &&
                       PyTuple_CheckExact(PyTuple_GET_ITEM(answer, 2)))) {
        if (store(call, PyTuple_GET_ITEM(answer, 1), PyTuple_GET_ITEM(answer, 2)) == 0) {
            result = Py_NewRef(PyTuple_GET_ITEM(answer, 0));
        }
    }
    else {
        result = call_method(call->self, "_finish", answer, args, nargs, kwnames);
    }
    Py_DECREF(answer);
    return result;
}

/* If the current exception is an `escape`, it becomes the reason to hand over all later calls.
 * Returns a new str, or NULL with an exception. */
static PyObject *
take_escape(FjVariableJit *self)
{
    if (!PyErr_ExceptionMatches(self->escape)) {
        return NULL;
    }
    PyObject *exception = fj_compat_get_raised();
    PyObject *reason = PyObject_Str(exception);
    Py_DECREF(exception);
    if (reason != NULL) {
        PyObject *before;
        FJ_LOCK(self);
        before = self->reason;
        FJ_STORE_POINTER(self->reason, Py_NewRef(reason));
        FJ_UNLOCK();
        Py_XDECREF(before);
    }
    return reason;
}

/* Makes a call after the guards.  NULL with a reason if it must be handed over. */
static PyObject *
make_call(VariableCall *call, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    FjVariableJit *self = call->self;
    PyObject *result = fj_call_with_check(self->inner, &call->check, args, nargs, kwnames);
    if (FJ_UNLIKELY(result == NULL)) {
        if (PyErr_Occurred()) {
            call->reason = take_escape(self);
        }
        return NULL;
    }
    result = complete(call, result, args, nargs, kwnames);
    if (FJ_UNLIKELY(call->unsettled && result != NULL)) {
        /* Reuse the collected Variables: the call can have changed the arguments. */
        PyObject *variables = fj_tuple_from(call->check.objects.items, call->num_variables);
        PyObject *answer = variables == NULL ? NULL
                                             : PyObject_CallMethod((PyObject *)self, "_settle",
                                                                   "(O)", variables);
        if (answer == NULL) {
            Py_CLEAR(result);
        }
        Py_XDECREF(answer);
        Py_XDECREF(variables);
    }
    return result;
}

static PyObject *
jit_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    PyObject *result = NULL;
    VariableCall call;
    call.check.accept = accept;
    call.self = (FjVariableJit *)op;
    call.unsettled = 0;
    call.reason = NULL;
    if (FJ_UNLIKELY(FJ_LOAD_POINTER(call.self->reason) != NULL)) {
        FJ_LOCKED(op, call.reason = Py_XNewRef(call.self->reason));
    }
    if (FJ_LIKELY(call.reason == NULL && pass_guards(call.self, &call.reason) > 0)) {
        fj_leafbuf_init(&call.check.objects, call.stack, OBJECTS_INLINE);
        result = make_call(&call, args, nargs, kwnames);
        fj_leafbuf_clear(&call.check.objects);
    }
    if (FJ_UNLIKELY(call.reason != NULL)) {
        result = call_method(call.self, "_hand_over", call.reason, args, nargs, kwnames);
        Py_DECREF(call.reason);
    }
    return result;
}

/* Returns the offset of an object slot, or -1 with TypeError if the type has no such slot. */
static Py_ssize_t
slot_offset(PyTypeObject *type, const char *name)
{
    PyObject *descriptor = PyObject_GetAttrString((PyObject *)type, name);
    Py_ssize_t offset = -1;
    if (descriptor != NULL && Py_TYPE(descriptor) == &PyMemberDescr_Type) {
        const PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        offset = member->type == T_OBJECT_EX ? member->offset : -1;
    }
    Py_XDECREF(descriptor);
    if (offset < 0 && !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "`%.200s` has no slot `%s`", type->tp_name, name);
    }
    return offset;
}

static int
check_guards(PyObject *guards)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(guards); i++) {
        PyObject *guard = PyTuple_GET_ITEM(guards, i);
        if (!PyTuple_CheckExact(guard) || PyTuple_GET_SIZE(guard) != 4 ||
            !PyUnicode_Check(PyTuple_GET_ITEM(guard, 1))) {
            return fj_raise(PyExc_TypeError, "a guard is (object, name, value, reason)");
        }
    }
    return 0;
}

static PyObject *
jit_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"inner",  "registry", "variable_type", "key_type",
                               "guards", "escape",   "graph",         NULL};
    FjState *state = fj_state_of(type);
    PyObject *inner, *registry, *variable_type, *key_type, *guards, *escape;
    int graph;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O!O!Oi:VariableJit", keywords,
                                     state->filter_jit, &inner, state->registry, &registry,
                                     &PyType_Type, &variable_type, &PyType_Type, &key_type,
                                     &PyTuple_Type, &guards, &escape, &graph) ||
        check_guards(guards) < 0) {
        return NULL;
    }
    Py_ssize_t offset = slot_offset((PyTypeObject *)variable_type, "_raw_value");
    FjVariableJit *self = offset < 0 ? NULL : (FjVariableJit *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = jit_vectorcall;
        self->rules = (FjVariableRules){
            .registry = (FjRegistry *)Py_NewRef(registry),
            .variable_type = (PyTypeObject *)Py_NewRef(variable_type),
            .key_type = (PyTypeObject *)Py_NewRef(key_type),
            .raw_value = offset,
            .graph = graph,
        };
        fj_leafbuf_init(&self->states, self->states_inline, 2);
        self->inner = (FjFilterJit *)Py_NewRef(inner);
        self->guards = Py_NewRef(guards);
        self->escape = Py_NewRef(escape);
    }
    return (PyObject *)self;
}

static int
jit_clear(PyObject *op)
{
    FjVariableJit *self = (FjVariableJit *)op;
    fj_leafbuf_clear(&self->states);
    Py_CLEAR(self->reason);
    /* Keeps the members that a call reads: finalizers can still make calls.  The FilterJit
     * breaks the cycle of a function that refers to this object. */
    return 0;
}

#define JIT_REFERENCES(WHAT)                                                                  \
    WHAT(self->inner);                                                                        \
    WHAT(self->rules.registry);                                                               \
    WHAT(self->rules.variable_type);                                                          \
    WHAT(self->rules.key_type);                                                               \
    WHAT(self->guards);                                                                       \
    WHAT(self->escape);                                                                       \
    WHAT(self->reason);                                                                       \
    for (Py_ssize_t i = 0; i < self->states.count; i++) {                                     \
        WHAT(self->states.items[i]);                                                          \
    }

FJ_GC_TYPE(jit, FjVariableJit, JIT_REFERENCES, 0, (void)jit_clear(op), (void)0)

static PyObject *
jit_nodes(PyObject *op, PyObject *tree)
{
    const FjVariableRules *rules = &((FjVariableJit *)op)->rules;
    PyObject *reason = NULL, *result = NULL;
    PyObject *names = Py_BuildValue("(s)", "tree");
    if (names == NULL) {
        return NULL;
    }
    FJ_LEAFBUF(arrays, FJ_LEAFBUF_FEW);
    FJ_LEAFBUF(objects, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_flatten_arguments(rules->registry, names, NULL, &tree, NULL,
                                                  NULL, &arrays, &objects);
    int covered = structure == NULL
                      ? -1
                      : fj_variables_check_structure(rules, structure, &objects, 1, &reason);
    if (covered == 0) {
        PyErr_SetObject(PyExc_ValueError, reason);
    }
    else if (covered > 0) {
        result = fj_leafbuf_as_tuple(&objects);
    }
    Py_XDECREF(reason);
    Py_XDECREF(structure);
    Py_DECREF(names);
    fj_leafbuf_clear(&arrays);
    fj_leafbuf_clear(&objects);
    return result;
}

static PyMethodDef jit_methods[] = {
    FJ_METHOD("_nodes", jit_nodes, METH_O, "($self, tree, /)",
              "Returns a tuple of the Variables and Pytrees in a tree, each once, in call\n"
              "order. Raises ValueError if a call with the tree would be handed over."),
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef jit_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjVariableJit, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjVariableJit, weakrefs), READONLY, NULL},
    {"_inner", T_OBJECT, offsetof(FjVariableJit, inner), READONLY, NULL},
    {"_reason", T_OBJECT, offsetof(FjVariableJit, reason), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot jit_slots[] = {
    {Py_tp_doc,
     "VariableJit(inner, registry, variable_type, key_type, guards, escape, graph)\n--\n\n"
     "Calls `inner`, a FilterJit that returns (result, indices, values), and updates "
     "Variables."},
    {Py_tp_new, jit_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, jit_traverse},
    {Py_tp_clear, jit_clear},
    {Py_tp_dealloc, jit_dealloc},
    {Py_tp_methods, jit_methods},
    {Py_tp_members, jit_members},
    {0, NULL},
};

FJ_SPEC(fj_variable_jit_spec, "filterjit._core.VariableJit", sizeof(FjVariableJit), jit_slots,
        Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_BASETYPE);
