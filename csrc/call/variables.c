/* Checks if the Variables in a call's arguments can be updated.
 *
 * The facts that follow from a Structure are checked once, after flattening, and hold for all
 * arguments that match it.  Each call checks the types of the arrays and the trace level of
 * the Variables.
 *
 * Python code can run in a TraceState's `is_valid`, and when one is dropped. */
#include "call/variables.h"

#include "structure/fields.h"

#define OF_ANOTHER_KIND "a Variable has attributes of another kind: `%.100s`"

/* Sets the reason from a PyUnicode_FromFormat format.  Returns 0, or -1 with MemoryError. */
static int
hand_over(PyObject **reason, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    *reason = PyUnicode_FromFormatV(format, values);
    va_end(values);
    return *reason == NULL ? -1 : 0;
}

static inline int
is_variable(const FjNode *node)
{
    return node->code == FJ_OBJECT && (node->flags & FJ_NODE_NUMBERED);
}

/* The offset of a Variable's slot `_trace_state`. */
static inline Py_ssize_t
state_offset(const FjNodeKind *kind)
{
    return kind->offsets[fj_node_kind_fields(kind)];
}

static int
check_leaf_type(PyTypeObject *type, int is_tracer, PyObject **reason)
{
    return is_tracer
               ? hand_over(reason, "an argument is a tracer")
               : hand_over(reason,
                           "an argument has a leaf that is no array and no number: `%.100s`",
                           type->tp_name);
}

static int
check_variable(const FjVariableRules *rules, const FjNode *node, PyObject *variable,
               int lenient, PyObject **reason)
{
    FjNodeKind *kind = fj_node_kind(node);
    if (!PyType_IsSubtype(Py_TYPE(variable), rules->variable_type) ||
        !fj_fields_are_plain(kind) || kind->dynamic != 1 || kind->extra_names != 1 ||
        kind->offsets[0] != rules->raw_value || state_offset(kind) <= 0) {
        return hand_over(reason, OF_ANOTHER_KIND, Py_TYPE(variable)->tp_name);
    }
    const FjNode *value = node + 1;
    if (!lenient && value->code != FJ_ARRAY && value->code != FJ_STATIC) {
        PyObject *object = fj_compat_slot_get(variable, rules->raw_value);
        int result = check_leaf_type(Py_TYPE(object == NULL ? Py_None : object), 0, reason);
        Py_XDECREF(object);
        return result;
    }
    return 1;
}

int
fj_variables_check_structure(const FjVariableRules *rules, const FjStructure *structure,
                             const FjLeafBuf *objects, int lenient, PyObject **reason)
{
    int result = 1;
    uint32_t number = 0; /* of the next numbered object */
    for (uint32_t i = 1; i < structure->count && result > 0; i++) {
        const FjNode *node = &structure->nodes[i];
        PyTypeObject *type = structure->info[i].type;
        int has_number = fj_node_has_number(node);
        if (node->code == FJ_STATIC && !lenient &&
            !(node->flags & (FJ_NODE_FIELD | FJ_NODE_ARGUMENT))) {
            result =
                check_leaf_type(Py_TYPE(node->aux), node->flags & FJ_NODE_MAYBE_ARRAY, reason);
        }
        else if (node->code == FJ_CUSTOM || (node->code == FJ_MODULE && !has_number)) {
            result =
                hand_over(reason, "%s: `%.100s`",
                          has_number ? "a Module is flattened by functions in Python"
                                     : "an argument is a pytree that is flattened in Python",
                          type->tp_name);
        }
        else if (node->code == FJ_REF && !rules->graph) {
            result = hand_over(reason, "a Variable or Module occurs twice in the arguments");
        }
        else if (node->code == FJ_REF &&
                 structure->info[structure->identities[fj_node_number(node)]].subtree_end >
                     i) {
            result = hand_over(reason, "a Module contains itself");
        }
        else if (is_variable(node)) {
            result = check_variable(rules, node, objects->items[number], lenient, reason);
        }
        number += (uint32_t)has_number;
    }
    return result;
}

/* Checks an array leaf other than common arrays and random keys.  `inside` for an attribute of
 * a Pytree or anything below it, except the value of a Variable. */
static int
check_leaf(const FjVariableRules *rules, PyTypeObject *type, int inside, PyObject **reason)
{
    const FjNodeKind *kind = fj_registry_cached_kind(rules->registry, type);
    if (kind == NULL || kind->code == FJ_MAYBE_ARRAY) {
        return check_leaf_type(type, 1, reason);
    }
    /* Upstream converts it to a JAX array or leaves it static. */
    return inside && rules->graph
               ? hand_over(reason, "a Module holds a leaf that is no array of JAX: `%.100s`",
                           type->tp_name)
               : 1;
}

int
fj_variables_check_leaves(const FjVariableRules *rules, const FjStructure *structure,
                          PyObject *const *arrays, int *unsettled, PyObject **reason)
{
    const PyTypeObject *usual = rules->registry->array_type, *key = rules->key_type;
    int are_usual = 1, result = 1;
    for (Py_ssize_t i = 0; i < structure->open_leaves; i++) {
        are_usual &= Py_TYPE(arrays[i]) == usual || Py_TYPE(arrays[i]) == key;
    }
    uint32_t pytree_end = 0; /* of the outermost Pytree around the node */
    Py_ssize_t leaf = 0;
    for (uint32_t i = 1; !are_usual && i < structure->count && result > 0; i++) {
        const FjNode *node = &structure->nodes[i];
        if (node->code == FJ_MODULE && i >= pytree_end) {
            pytree_end = structure->info[i].subtree_end;
        }
        if (node->code != FJ_ARRAY) {
            continue;
        }
        PyTypeObject *type = Py_TYPE(arrays[leaf++]);
        if (type != usual && type != key) {
            int is_value = is_variable(node - 1);
            result = check_leaf(rules, type, i < pytree_end && !is_value, reason);
            *unsettled |= is_value && rules->graph == 2;
        }
    }
    return result;
}

/* (P) True if a TraceState is at the top level. */
static int
is_valid(PyObject *state, PyObject **reason)
{
    /* The method can make the same call, possibly without a Python frame. */
    if (Py_EnterRecursiveCall(" in a jitted call")) {
        return -1;
    }
    int result = fj_compat_enter_frames();
    if (result == 0) {
        result = fj_steal_truth(PyObject_CallMethod(state, "is_valid", NULL));
        fj_compat_leave_frames();
    }
    Py_LeaveRecursiveCall();
    return result == 0 ? hand_over(reason, "a Variable is of another trace level") : result;
}

/* (P) Checks and remembers the TraceState (stolen) of the Variable with this number. */
static int
ask_state(FjLeafBuf *states, Py_ssize_t number, PyObject *state, PyObject **reason)
{
    int result = is_valid(state, reason);
    if (result > 0 && number < states->count) {
        Py_SETREF(states->items[number], Py_NewRef(state));
    }
    else if (result > 0 && number == states->count) { /* other calls can shorten it */
        result = fj_leafbuf_push(states, state) < 0 ? -1 : 1;
    }
    Py_DECREF(state);
    return result;
}

int
fj_variables_check_states(const FjStructure *structure, FjLeafBuf *objects, FjLeafBuf *states,
                          Py_ssize_t *count, PyObject **reason)
{
    Py_ssize_t number = 0;
    for (Py_ssize_t i = 0; i < objects->count; i++) {
        const FjNode *node = &structure->nodes[structure->identities[i]];
        if (node->code != FJ_OBJECT) {
            continue;
        }
        PyObject *variable = objects->items[i];
        FjNodeKind *kind = fj_node_kind(node);
        if (FJ_UNLIKELY(!fj_fields_are_plain(kind))) { /* its class changed */
            return hand_over(reason, OF_ANOTHER_KIND, Py_TYPE(variable)->tp_name);
        }
        objects->items[i] = objects->items[number];
        objects->items[number] = variable;
        const void *address = fj_compat_slot_peek(variable, state_offset(kind));
        if (FJ_UNLIKELY(number >= states->count || states->items[number] != address)) {
            PyObject *state = fj_compat_slot_get(variable, state_offset(kind));
            int result = state == NULL ? hand_over(reason, "a Variable has no value")
                                       : ask_state(states, number, state, reason);
            if (result <= 0) {
                return result;
            }
        }
        number++;
    }
    *count = number;
    fj_leafbuf_truncate(states, number);
    return 1;
}
