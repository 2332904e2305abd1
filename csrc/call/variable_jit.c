/* The Python type VariableJit: a FilterJit whose calls update Variables of Flax NNX.
 *
 * A call
 *
 *   1. looks at the guards: attributes that must have certain values, such as the current
 *      trace of JAX, which must be that of the top level;
 *   2. calls the FilterJit, which returns (result, indices, values), and while it does so,
 *      when the arguments have been bound and matched, collects the Variables in them
 *      (variable_walk.c), and sees which occur again, which is a part of their structure;
 *   3. stores the values in the Variables with these indices.  Where a Variable holds a number
 *      or an array of NumPy, which upstream makes an array of JAX, `_settle` does so.
 *
 * The FilterJit may also return (result, None, ...): then `_finish` completes the call.  Where
 * the guards or the walk find something that is not covered, `_hand_over` makes the call in
 * another way; a subclass in Python has both methods.  So does a call whose trace raises
 * `escape`, before it has run the user's function.
 *
 * What a call of VariableJit does itself changes nothing that another call or thread uses
 * while it runs, except for `seen`, which a walk takes away and brings back.
 *
 * Python code can run in all of this file, as in the files named above.
 */
#include "call/variable_jit.h"

#include <structmember.h>

#include "base/leafbuf.h"
#include "base/state.h"
#include "call/call.h"
#include "call/filter_jit.h"
#include "call/variable_walk.h"

/* Room for so many Variables is on the stack, where FilterJit takes 8 KiB besides. */
#define VARIABLES_INLINE 257

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjFilterJit *inner;
    FjRegistry *registry;
    PyTypeObject *variable_type;
    PyTypeObject *key_type;
    Py_ssize_t raw_value; /* the offset of a Variable's slot */
    PyObject *guards;     /* tuple of (object, name of an attribute, value, reason) */
    PyObject *escape;     /* a class of exceptions */
    PyObject *reason;     /* why every call is handed over, or NULL */
    int graph;
    FjSeenList seen;
    PyObject *weakrefs;
} FjVariableJit;

/* ---- calls ---- */

/* Calls self.name(first, args, kwargs). */
static PyObject *
call_method(FjVariableJit *self, const char *name, PyObject *first, PyObject *const *args,
            Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *positional, *keywords;
    if (fj_bind_pack(args, nargs, kwnames, &positional, &keywords) < 0) {
        return NULL;
    }
    PyObject *result =
        PyObject_CallMethod((PyObject *)self, name, "OOO", first, positional, keywords);
    Py_DECREF(positional);
    Py_DECREF(keywords);
    return result;
}

static PyObject *
hand_over(FjVariableJit *self, PyObject *reason, PyObject *const *args, Py_ssize_t nargs,
          PyObject *kwnames)
{
    return reason == NULL ? NULL
                          : call_method(self, "_hand_over", reason, args, nargs, kwnames);
}

/* Whether all guards have their values; else `*reason` is a new str.  1, 0, or -1 with an
 * error. */
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
        Py_DECREF(value); /* only its address is compared */
        if (FJ_UNLIKELY(value != PyTuple_GET_ITEM(guard, 2))) {
            *reason = Py_NewRef(PyTuple_GET_ITEM(guard, 3));
            return 0;
        }
    }
    return 1;
}

static void
init_walk(FjVariableJit *self, FjVariableWalk *walk, FjLeafBuf *variables)
{
    walk->registry = self->registry;
    walk->variable_type = self->variable_type;
    walk->raw_value = self->raw_value;
    walk->key_type = self->key_type;
    walk->graph = self->graph;
    walk->lenient = 0;
    walk->variables = variables;
    walk->nodes = NULL;
}

/* The state of one call. */
typedef struct {
    FjInspector inspector; /* the first member */
    FjVariableJit *self;
    int unsettled;       /* a Variable's value is to become an array of JAX */
    PyObject *reason;    /* owned: why the call is handed over, or NULL */
    FjLeafBuf variables; /* in the arguments, in order of the parameters */
    PyObject *room[VARIABLES_INLINE];
} Call;

/* Collects the Variables in the arguments: see FjInspector. */
static int
collect(FjInspector *inspector, const FjStructure *structure, PyObject *const *arguments,
        Py_ssize_t count, const FjCapture *captures, Py_ssize_t num_captures)
{
    Call *call = (Call *)inspector;
    FjVariableJit *self = call->self;
    FjVariableWalk walk;
    int result = 1;
    init_walk(self, &walk, &call->variables);
    fj_variable_walk_start(&walk, &self->seen);
    for (Py_ssize_t i = 0; i < count && result > 0; i++) {
        /* Once Python code has run, the captures may be those of another call. */
        if (num_captures > 0 && !walk.ran_python && captures->parameter == i) {
            result = fj_variable_walk_captured(&walk, captures++);
            num_captures--;
        }
        else if (arguments[i] != NULL) {
            result = fj_variable_walk(&walk, arguments[i]);
        }
    }
    if (result > 0 && structure != NULL && !fj_variable_walk_fits(&walk, structure)) {
        result = 2;
    }
    PyObject *exception = result < 0 ? fj_compat_take_exception() : NULL;
    fj_variable_walk_end(&walk, &self->seen);
    if (result < 0) {
        Py_XDECREF(walk.reason);
        /* Two attempts in each call would take forever if a recursion has no end. */
        if (!PyErr_GivenExceptionMatches(exception, PyExc_Exception) ||
            PyErr_GivenExceptionMatches(exception, PyExc_RecursionError) ||
            PyErr_GivenExceptionMatches(exception, PyExc_MemoryError)) {
            fj_compat_give_exception(exception);
            return -1;
        }
        Py_DECREF(exception); /* upstream raises its own */
        walk.reason = PyUnicode_FromString("the arguments cannot be walked");
        result = walk.reason == NULL ? -1 : 0;
    }
    call->reason = walk.reason;
    call->unsettled = walk.unsettled;
    return result;
}

/* Stores the new values in the Variables.  0, or -1 with an error and nothing stored. */
static int
store(FjVariableJit *self, const FjLeafBuf *variables, PyObject *indices, PyObject *values)
{
    Py_ssize_t count = PyTuple_GET_SIZE(values);
    const char *bytes = PyBytes_AS_STRING(indices);
    if (PyBytes_GET_SIZE(indices) != count * (Py_ssize_t)sizeof(uint32_t)) {
        PyErr_SetString(PyExc_SystemError, "VariableJit: not as many indices as values");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t index;
        memcpy(&index, bytes + (size_t)i * sizeof index, sizeof index);
        if ((Py_ssize_t)index >= variables->count) {
            PyErr_SetString(PyExc_SystemError, "VariableJit: the arguments have changed");
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t index;
        memcpy(&index, bytes + (size_t)i * sizeof index, sizeof index);
        PyObject **place = (PyObject **)((char *)variables->items[index] + self->raw_value);
        Py_XSETREF(*place, Py_NewRef(PyTuple_GET_ITEM(values, i)));
    }
    return 0;
}

/* Completes a call with what the FilterJit has returned, which is stolen. */
static PyObject *
complete(FjVariableJit *self, const FjLeafBuf *variables, PyObject *answer,
         PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *result = NULL;
    if (!PyTuple_CheckExact(answer) || PyTuple_GET_SIZE(answer) != 3) {
        PyErr_SetString(PyExc_TypeError, "the FilterJit must return a tuple of three");
    }
    else if (FJ_LIKELY(PyBytes_CheckExact(PyTuple_GET_ITEM(answer, 1)) &&
                       PyTuple_CheckExact(PyTuple_GET_ITEM(answer, 2)))) {
        if (store(self, variables, PyTuple_GET_ITEM(answer, 1), PyTuple_GET_ITEM(answer, 2)) ==
            0) {
            result = Py_NewRef(PyTuple_GET_ITEM(answer, 0));
        }
    }
    else {
        result = call_method(self, "_finish", answer, args, nargs, kwnames);
    }
    Py_DECREF(answer);
    return result;
}

/* Takes the exception that is set if it is an `escape`, as the reason for which every call is
 * handed over from now on.  A new str, or NULL with an exception. */
static PyObject *
take_escape(FjVariableJit *self)
{
    if (!PyErr_ExceptionMatches(self->escape)) {
        return NULL;
    }
    PyObject *exception = fj_compat_take_exception();
    PyObject *reason = PyObject_Str(exception);
    Py_DECREF(exception);
    if (reason != NULL) {
        Py_XSETREF(self->reason, Py_NewRef(reason));
    }
    return reason;
}

/* Makes a call that the guards have let pass; NULL with a reason if it must be handed over. */
static PyObject *
make_call(Call *call, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    FjVariableJit *self = call->self;
    PyObject *result = fj_call_inspected(self->inner, &call->inspector, args, nargs, kwnames);
    if (FJ_UNLIKELY(result == NULL)) {
        if (PyErr_Occurred()) {
            call->reason = take_escape(self);
        }
        return NULL;
    }
    result = complete(self, &call->variables, result, args, nargs, kwnames);
    if (FJ_UNLIKELY(call->unsettled && result != NULL)) {
        /* Not those of another walk: the call may have changed what is in the arguments. */
        PyObject *variables = fj_leafbuf_as_tuple(&call->variables);
        PyObject *answer = variables == NULL
                               ? NULL
                               : call_method(self, "_settle", variables, args, nargs, kwnames);
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
    Call call;
    call.inspector.inspect = collect;
    call.self = (FjVariableJit *)op;
    call.unsettled = 0;
    call.reason = Py_XNewRef(call.self->reason);
    if (FJ_LIKELY(call.reason == NULL && pass_guards(call.self, &call.reason) > 0)) {
        fj_leafbuf_init(&call.variables, call.room, VARIABLES_INLINE);
        result = make_call(&call, args, nargs, kwnames);
        fj_leafbuf_clear(&call.variables);
    }
    if (FJ_UNLIKELY(call.reason != NULL)) {
        result = hand_over(call.self, call.reason, args, nargs, kwnames);
        Py_DECREF(call.reason);
    }
    return result;
}

/* ---- the type ---- */

/* The offset of a slot that holds an object; -1 with TypeError if the type has none of this
 * name. */
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
            PyErr_SetString(PyExc_TypeError, "a guard is (object, name, value, reason)");
            return -1;
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
        self->raw_value = offset;
        self->graph = graph;
        self->inner = (FjFilterJit *)Py_NewRef(inner);
        self->registry = (FjRegistry *)Py_NewRef(registry);
        self->variable_type = (PyTypeObject *)Py_NewRef(variable_type);
        self->key_type = (PyTypeObject *)Py_NewRef(key_type);
        self->guards = Py_NewRef(guards);
        self->escape = Py_NewRef(escape);
    }
    return (PyObject *)self;
}

static int
jit_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjVariableJit *self = (FjVariableJit *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->inner);
    Py_VISIT(self->registry);
    Py_VISIT(self->variable_type);
    Py_VISIT(self->key_type);
    Py_VISIT(self->guards);
    Py_VISIT(self->escape);
    Py_VISIT(self->reason);
    return fj_seen_traverse(&self->seen, visit, arg);
}

static int
jit_clear(PyObject *op)
{
    FjVariableJit *self = (FjVariableJit *)op;
    fj_seen_clear(&self->seen);
    Py_CLEAR(self->reason);
    /* The members that a call reads stay, since finalizers may still make calls.  The cycle
     * of a function that refers to this object is broken by the FilterJit. */
    return 0;
}

static void
jit_dealloc(PyObject *op)
{
    FjVariableJit *self = (FjVariableJit *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    jit_clear(op);
    Py_XDECREF(self->inner);
    Py_XDECREF(self->registry);
    Py_XDECREF(self->variable_type);
    Py_XDECREF(self->key_type);
    Py_XDECREF(self->guards);
    Py_XDECREF(self->escape);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
jit_nodes(PyObject *op, PyObject *tree)
{
    PyObject *room[FJ_LEAFBUF_FEW], *more_room[FJ_LEAFBUF_FEW], *result = NULL;
    FjLeafBuf variables, nodes;
    FjVariableWalk walk;
    FjSeenList seen = {.items = NULL};
    fj_leafbuf_init(&variables, room, FJ_LEAFBUF_FEW);
    fj_leafbuf_init(&nodes, more_room, FJ_LEAFBUF_FEW);
    init_walk((FjVariableJit *)op, &walk, &variables);
    walk.lenient = 1;
    walk.nodes = &nodes;
    fj_variable_walk_start(&walk, &seen);
    int found = fj_variable_walk(&walk, tree);
    PyObject *exception = found < 0 ? fj_compat_take_exception() : NULL;
    fj_variable_walk_end(&walk, &seen);
    fj_seen_clear(&seen);
    if (exception != NULL) {
        fj_compat_give_exception(exception);
    }
    else if (found == 0) {
        PyErr_SetObject(PyExc_ValueError, walk.reason);
    }
    else {
        result = fj_leafbuf_as_list(&nodes);
    }
    Py_XDECREF(walk.reason);
    fj_leafbuf_clear(&variables);
    fj_leafbuf_clear(&nodes);
    return result;
}

static PyMethodDef jit_methods[] = {
    {"_nodes", jit_nodes, METH_O,
     "_nodes($self, tree, /)\n--\n\n"
     "Returns a list of the Variables and Pytrees in a tree, each once, in the order of a\n"
     "call.\n\n"
     "Raises ValueError for a tree with which a call would be handed over."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef jit_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjVariableJit, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjVariableJit, weakrefs), READONLY, NULL},
    {"_inner", T_OBJECT, offsetof(FjVariableJit, inner), READONLY, "The FilterJit."},
    {"_reason", T_OBJECT, offsetof(FjVariableJit, reason), 0,
     "Why every call is handed over, or None if it was not set."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(jit_doc,
             "VariableJit(inner, registry, variable_type, key_type, guards, escape, graph)\n"
             "--\n\n"
             "A FilterJit that returns (result, indices, values), called with Variables.");

static PyType_Slot jit_slots[] = {
    {Py_tp_doc, (void *)jit_doc},
    {Py_tp_new, jit_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, jit_traverse},
    {Py_tp_clear, jit_clear},
    {Py_tp_dealloc, jit_dealloc},
    {Py_tp_methods, jit_methods},
    {Py_tp_members, jit_members},
    {0, NULL},
};

PyType_Spec fj_variable_jit_spec = {
    .name = "filterjit._core.VariableJit",
    .basicsize = sizeof(FjVariableJit),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = jit_slots,
};
