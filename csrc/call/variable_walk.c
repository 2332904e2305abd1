/* Collects the Variables in the arguments of a call, and sees whether they can be updated.
 *
 * A Pytree that contains itself, or a leaf that upstream treats in another way than the C core
 * does, ends the walk: the caller hands the call over to upstream.  So does a Variable or
 * Pytree that occurs again where upstream is not in graph mode.  In graph mode, the walk notes
 * where one does, and which, as flatten.c does (Sharing in structure.h).
 *
 * What occurs again follows from the addresses alone.  So a walk compares the address of each
 * Variable and Pytree with that which the last walk met at this place.  Only if one differs,
 * it makes a map of the addresses.
 *
 * An argument that the memo has a snapshot of is not walked if a walk has met the same objects
 * as the memo: that is so if no Python code has run between the check of the memo and the end
 * of the walk (FjSeenCapture).  From then on, as long as the memo finds the argument
 * unchanged, these objects are alive and in their places.  The memo does not look at their
 * TraceStates.
 *
 * Python code can run anywhere in this file: `classify`, `describe`, `is_valid` of a
 * TraceState, comparisons of dict keys, getattr and finalizers.  So the walk holds a reference
 * to each object that it looks at.
 */
#include "call/variable_walk.h"

#include "base/scratch.h"
#include "structure/fields.h"

/* ---- what was seen ---- */

static void
clear_seen(FjSeen *seen)
{
    Py_CLEAR(seen->type);
    Py_CLEAR(seen->kind);
    Py_CLEAR(seen->state);
}

/* Drops all but the first `count`. */
static void
truncate_seen(FjSeenList *list, Py_ssize_t count)
{
    while (list->count > count) {
        FjSeen last = list->items[--list->count];
        clear_seen(&last);
    }
}

void
fj_seen_clear(FjSeenList *list)
{
    FjSeenList old = *list;
    *list = (FjSeenList){.items = NULL};
    truncate_seen(&old, 0);
    PyMem_Free(old.items);
    PyMem_Free(old.refs);
}

int
fj_seen_traverse(const FjSeenList *list, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < list->count; i++) {
        Py_VISIT(list->items[i].type);
        Py_VISIT(list->items[i].kind);
        Py_VISIT(list->items[i].state);
    }
    return 0;
}

/* ---- the walk ---- */

static int walk(FjVariableWalk *w, PyObject *object);

/* Always 0, or -1 with MemoryError. */
static int
hand_over(FjVariableWalk *w, const char *reason)
{
    w->reason = PyUnicode_FromString(reason);
    return w->reason == NULL ? -1 : 0;
}

/* The same, for an object of a type that is not covered. */
static int
hand_over_type(FjVariableWalk *w, const char *reason, PyObject *object)
{
    w->reason = PyUnicode_FromFormat("%s: `%.100s`", reason, Py_TYPE(object)->tp_name);
    return w->reason == NULL ? -1 : 0;
}

/* What the last walk met at this place if it was `object`, else NULL. */
static inline FjSeen *
expected(FjVariableWalk *w, PyObject *object)
{
    if (w->position >= w->seen.count) {
        return NULL;
    }
    FjSeen *seen = &w->seen.items[w->position];
    return seen->object == object && seen->type == Py_TYPE(object) ? seen : NULL;
}

/* Appends an empty place.  0, or -1 with MemoryError. */
static int
append_seen(FjSeenList *list)
{
    if (list->count == list->capacity) {
        Py_ssize_t capacity = list->capacity == 0 ? 32 : list->capacity * 2;
        FjSeen *items = PyMem_Realloc(list->items, (size_t)capacity * sizeof(FjSeen));
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = (FjSeen){.object = NULL};
    return 0;
}

/* Makes the map of what was met, if there is none.  0, or -1 with MemoryError. */
static int
start_numbers(FjVariableWalk *w)
{
    if (!w->same) {
        return 0;
    }
    w->same = 0;
    for (Py_ssize_t i = 0; i < w->position; i++) {
        if (fj_address_map_add(&w->numbers, w->seen.items[i].object, (uint32_t)i) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Notes that an object occurs again.  0, or -1 with MemoryError. */
static int
note_ref(FjVariableWalk *w, uint32_t number)
{
    FjSeenList *list = &w->seen;
    if (w->ref == list->ref_capacity) {
        size_t capacity = w->ref == 0 ? 8 : (size_t)w->ref * 2;
        FjRef *refs = PyMem_Realloc(list->refs, capacity * sizeof(FjRef));
        if (refs == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        list->refs = refs;
        list->ref_capacity = (uint32_t)capacity;
    }
    list->refs[w->ref++] = (FjRef){(uint32_t)w->position, number};
    list->num_refs = w->ref;
    return 0;
}

/* Whether a Variable or Pytree that is not `expected` was met before, and is one of which that
 * may be so.  1, 0 if it is new, -1 with an error, or -2 if the call is handed over. */
static int
meet_again(FjVariableWalk *w, PyObject *object)
{
    Py_ssize_t number = -1;
    if (w->same && w->ref < w->seen.num_refs &&
        w->seen.refs[w->ref].before == (uint32_t)w->position &&
        w->seen.items[w->seen.refs[w->ref].number].object == object) {
        number = w->seen.refs[w->ref++].number; /* as in the last walk */
    }
    else if (start_numbers(w) < 0 ||
             ((number = fj_address_map_find(&w->numbers, object)) >= 0 && w->graph &&
              note_ref(w, (uint32_t)number) < 0)) {
        return -1;
    }
    if (number >= 0 && !w->graph) {
        return hand_over(w, "a Variable or Module occurs twice in the arguments") < 0 ? -1
                                                                                      : -2;
    }
    for (const FjOpenPytree *open = w->open; number >= 0 && open != NULL;
         open = open->parent) {
        if (open->number == number) {
            return hand_over(w, "a Module contains itself") < 0 ? -1 : -2;
        }
    }
    return number >= 0;
}

/* Remembers a Variable or Pytree of this kind, which is new, and goes on to the next place.
 * 1, or -1 with MemoryError. */
static int
see(FjVariableWalk *w, PyObject *object, FjNodeKind *kind, PyObject *state, Py_ssize_t nodes,
    Py_ssize_t trace_state)
{
    if ((w->position == w->seen.count || w->seen.items[w->position].object != object) &&
        start_numbers(w) < 0) {
        return -1;
    }
    if (!w->same && fj_address_map_add(&w->numbers, object, (uint32_t)w->position) < 0) {
        return -1;
    }
    if (w->position == w->seen.count && append_seen(&w->seen) < 0) {
        return -1;
    }
    FjSeen *place = &w->seen.items[w->position++];
    FjSeen old = *place;
    *place = (FjSeen){.object = object,
                      .type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object)),
                      .kind = (FjNodeKind *)Py_NewRef((PyObject *)kind),
                      .state = Py_XNewRef(state),
                      .nodes = nodes,
                      .trace_state = trace_state};
    if (old.object != NULL && old.type != Py_TYPE(object)) {
        memset(w->seen.captures, 0, sizeof w->seen.captures); /* a Variable may be none now */
    }
    w->ran_python = 1; /* in a finalizer */
    clear_seen(&old);
    return 1;
}

/* Is called before Python code that may make the same call again.  0, or -1 with
 * RecursionError. */
static int
start_python(FjVariableWalk *w)
{
    if (!w->counts_frames) {
        if (fj_compat_enter_frames(1) < 0) {
            return -1;
        }
        w->counts_frames = 1;
    }
    w->ran_python = 1;
    return 0;
}

/* (P) The kind of an object: a new reference, or NULL with an error. */
static FjNodeKind *
find_kind(FjVariableWalk *w, PyObject *object)
{
    FjNodeKind *kind = fj_registry_cached_kind(w->registry, Py_TYPE(object));
    if (FJ_LIKELY(kind != NULL)) {
        return (FjNodeKind *)Py_NewRef((PyObject *)kind);
    }
    return start_python(w) < 0 ? NULL : fj_registry_kind(w->registry, object);
}

/* Whether a leaf, which is an attribute of a Pytree or below one if it is `inside`, is treated
 * by upstream as by the C core, which traces it. */
static int
walk_leaf(FjVariableWalk *w, PyObject *leaf, int inside)
{
    if (FJ_LIKELY(Py_TYPE(leaf) == w->registry->array_type) || w->lenient ||
        Py_TYPE(leaf) == w->key_type) {
        return 1;
    }
    FjNodeKind *kind = find_kind(w, leaf);
    if (kind == NULL) {
        return -1;
    }
    FjKindCode code = fj_registry_code(w->registry, kind);
    Py_DECREF(kind);
    if (code == FJ_MAYBE_ARRAY) {
        return hand_over(w, "an argument is a tracer");
    }
    if (code != FJ_ARRAY) {
        return hand_over_type(w, "an argument has a leaf that is no array and no number",
                              leaf);
    }
    if (inside && w->graph) {
        /* Upstream makes it an array of JAX, or leaves it static. */
        return hand_over_type(w, "a Module holds a leaf that is no array of JAX", leaf);
    }
    return 1;
}

/* Whether a TraceState is that of the top level: 1, 0, or -1 with an error. */
static int
is_valid(FjVariableWalk *w, PyObject *state)
{
    return start_python(w) < 0 ? -1
                               : fj_take_truth(PyObject_CallMethod(state, "is_valid", NULL));
}

static int
walk_variable(FjVariableWalk *w, PyObject *variable, FjNodeKind *kind)
{
    if (!fj_fields_are_plain(kind) || kind->dynamic != 1 || kind->extra_names != 1 ||
        kind->offsets[0] != w->raw_value ||
        kind->offsets[kind->dynamic + kind->statics] <= 0) {
        return hand_over_type(w, "a Variable has attributes of another kind", variable);
    }
    Py_ssize_t offset = kind->offsets[kind->dynamic + kind->statics];
    PyObject *value = *(PyObject **)((char *)variable + kind->offsets[0]);
    PyObject *state = *(PyObject **)((char *)variable + offset);
    if (value == NULL || state == NULL) {
        return hand_over(w, "a Variable has no value");
    }
    FjSeen *seen = expected(w, variable);
    int result = FJ_LIKELY(seen != NULL && w->same) ? 0 : meet_again(w, variable);
    if (result != 0) {
        return result == -2 ? 0 : result;
    }
    result = 1;
    Py_INCREF(state);
    if (!w->lenient) {
        if (FJ_UNLIKELY(Py_TYPE(value) != w->registry->array_type)) {
            Py_INCREF(value);
            result = walk_leaf(w, value, 0);
            w->unsettled |= w->graph == 2 && Py_TYPE(value) != w->key_type;
            Py_DECREF(value);
        }
        if (result > 0 && (seen == NULL || seen->state != state)) {
            seen = NULL;
            result = is_valid(w, state);
            if (result == 0) {
                result = hand_over(w, "a Variable is of another trace level");
            }
        }
    }
    if (result > 0) {
        if (FJ_LIKELY(seen != NULL && w->same)) {
            w->position++;
        }
        else {
            result = see(w, variable, kind, w->lenient ? NULL : state, 0, offset);
        }
    }
    Py_DECREF(state);
    if (result > 0 && (fj_leafbuf_push(w->variables, variable) < 0 ||
                       (w->nodes != NULL && fj_leafbuf_push(w->nodes, variable) < 0))) {
        return -1;
    }
    return result;
}

/* Reads the attributes that an instance of a Pytree has if it is of this kind: 1 with new
 * references, 0 if it is not, or -1 with an error. */
static int
read_pytree(FjVariableWalk *w, PyObject *object, FjNodeKind *kind, PyObject **values)
{
    Py_ssize_t count = fj_node_kind_fields(kind);
    int others = fj_fields_is_wrapper(object, kind);
    if (others != 0) {
        return others < 0 ? -1 : 0;
    }
    FjFieldView view;
    if (fj_fields_view(object, &view) < 0) {
        return -1;
    }
    w->ran_python |= !view.python_free;
    if (fj_fields_get_all(object, kind, count, fj_registry_missing(w->registry), values) < 0) {
        return -1;
    }
    int complete = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        complete &= values[i] != NULL;
    }
    for (Py_ssize_t i = 0; i < count && !complete; i++) {
        Py_XDECREF(values[i]);
    }
    return complete;
}

/* The index of "_pytree__nodes" among the names; -1 if it is not there. */
static Py_ssize_t
find_nodes(const FjNodeKind *kind)
{
    for (Py_ssize_t i = kind->dynamic; i < fj_node_kind_fields(kind); i++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kind->names, i),
                                             "_pytree__nodes") == 0) {
            return i;
        }
    }
    return -1;
}

/* Walks the children of a Pytree of this kind.  -2 if it is of another. */
static int
walk_pytree_of(FjVariableWalk *w, PyObject *object, FjNodeKind *kind, Py_ssize_t nodes,
               PyObject *state)
{
    PyObject *room[FJ_FIELDS_INLINE];
    Py_ssize_t count = fj_node_kind_fields(kind);
    PyObject **values = fj_scratch_new(room, FJ_FIELDS_INLINE, count);
    if (values == NULL) {
        return -1;
    }
    Py_ssize_t number = w->position;
    int result = read_pytree(w, object, kind, values);
    if (result <= 0) {
        fj_scratch_free(values, room);
        return result < 0 ? -1 : -2;
    }
    if (state != NULL && values[nodes] != state) {
        result = -2;
    }
    else if (state != NULL && w->same) {
        w->position++;
    }
    else {
        result = see(w, object, kind, values[nodes], nodes, 0);
    }
    FjOpenPytree here = {number, w->open};
    if (result > 0 && w->nodes != NULL && fj_leafbuf_push(w->nodes, object) < 0) {
        result = -1;
    }
    w->open = &here;
    for (Py_ssize_t i = 0; i < kind->dynamic && result > 0; i++) {
        result = walk(w, values[i]);
    }
    w->open = here.parent;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_DECREF(values[i]);
    }
    fj_scratch_free(values, room);
    return result;
}

static int
walk_pytree(FjVariableWalk *w, PyObject *object, FjNodeKind *type_kind)
{
    FjNodeKind *kind;
    FjSeen *seen = expected(w, object);
    int result = FJ_LIKELY(seen != NULL && w->same) ? 0 : meet_again(w, object);
    if (result != 0) {
        return result == -2 ? 0 : result;
    }
    result = -2;
    if (FJ_LIKELY(seen != NULL && seen->state != NULL && seen->kind != type_kind)) {
        kind = (FjNodeKind *)Py_NewRef((PyObject *)seen->kind);
        PyObject *state = Py_NewRef(seen->state);
        result = walk_pytree_of(w, object, kind, seen->nodes, state);
        Py_DECREF(state);
        Py_DECREF(kind);
    }
    if (result == -2) {
        if (start_python(w) < 0 || fj_node_kind_described(type_kind, object, &kind) < 0) {
            return -1;
        }
        Py_ssize_t nodes = kind == NULL ? -1 : find_nodes(kind);
        result = nodes < 0 ? -2 : walk_pytree_of(w, object, kind, nodes, NULL);
        Py_XDECREF(kind);
    }
    return result == -2 ? hand_over(w, "a Module is flattened by functions in Python")
                        : result;
}

static int
walk_list(FjVariableWalk *w, PyObject *list)
{
    int result = 1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list) && result > 0; i++) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(list, i));
        result = walk(w, item);
        Py_DECREF(item);
    }
    return result;
}

static int
walk_tuple(FjVariableWalk *w, PyObject *tuple)
{
    int result = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple) && result > 0; i++) {
        result = walk(w, PyTuple_GET_ITEM(tuple, i));
    }
    return result;
}

/* Whether the keys are exactly str, and sorted. */
static int
are_sorted(PyObject *keys)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
        PyObject *key = PyList_GET_ITEM(keys, i);
        if (!PyUnicode_CheckExact(key) ||
            (i > 0 && PyUnicode_Compare(PyList_GET_ITEM(keys, i - 1), key) > 0)) {
            return 0;
        }
    }
    return 1;
}

/* A new list of the keys.  Runs no Python code, so Python 3.11 must not start the garbage
 * collector. */
static PyObject *
keys_of(PyObject *dict)
{
#if PY_VERSION_HEX < 0x030C0000
    int enabled = PyGC_Disable();
#endif
    PyObject *keys = PySequence_List(dict);
#if PY_VERSION_HEX < 0x030C0000
    if (enabled) {
        PyGC_Enable();
    }
#endif
    return keys;
}

/* Walks a dict in the order of its sorted keys, as the Structure has them. */
static int
walk_dict(FjVariableWalk *w, PyObject *dict, int sort)
{
    int result = 1;
    PyObject *keys = keys_of(dict);
    if (keys == NULL) {
        return -1;
    }
    if (!are_sorted(keys) && (start_python(w) < 0 || (sort && PyList_Sort(keys) < 0))) {
        result = -1;
    }
    for (Py_ssize_t i = 0; result > 0 && i < PyList_GET_SIZE(keys); i++) {
        PyObject *value = PyDict_GetItemWithError(dict, PyList_GET_ITEM(keys, i));
        if (value == NULL) {
            result = PyErr_Occurred() ? -1 : hand_over(w, "a dict has changed");
            break;
        }
        Py_INCREF(value);
        result = walk(w, value);
        Py_DECREF(value);
    }
    Py_DECREF(keys);
    return result;
}

static int
walk_object(FjVariableWalk *w, PyObject *object, FjNodeKind *kind)
{
    if (PyType_IsSubtype(Py_TYPE(object), w->variable_type)) {
        return walk_variable(w, object, kind);
    }
    int result = 1;
    w->ran_python |= !fj_fields_are_plain(kind);
    for (Py_ssize_t i = 0; i < kind->dynamic && result > 0; i++) {
        PyObject *value = fj_fields_getattr(object, kind, i);
        if (value == NULL) {
            return -1;
        }
        result = walk(w, value);
        Py_DECREF(value);
    }
    return result;
}

static int
walk_kind(FjVariableWalk *w, PyObject *object, FjNodeKind *kind)
{
    switch (kind->code) {
    case FJ_NONE:
        return 1;
    case FJ_TUPLE:
    case FJ_NAMEDTUPLE:
        return walk_tuple(w, object);
    case FJ_LIST:
        return walk_list(w, object);
    case FJ_DICT:
    case FJ_DEFAULT_DICT:
        return walk_dict(w, object, 1);
    case FJ_ORDERED_DICT:
        return walk_dict(w, object, 0);
    case FJ_OBJECT:
        return walk_object(w, object, kind);
    case FJ_DESCRIBED:
        return walk_pytree(w, object, kind);
    case FJ_ARRAY:
    case FJ_MAYBE_ARRAY:
    case FJ_STATIC:
        return walk_leaf(w, object, w->open != NULL);
    default:
        return hand_over_type(w, "an argument is a pytree that is flattened in Python",
                              object);
    }
}

/* Walks an object, to which the caller holds a reference. */
static int
walk(FjVariableWalk *w, PyObject *object)
{
    if (Py_TYPE(object) == w->registry->array_type || object == Py_None) {
        return 1;
    }
    if (Py_EnterRecursiveCall(" in a jitted call")) {
        return -1;
    }
    FjNodeKind *kind = find_kind(w, object);
    int result = kind == NULL ? -1 : walk_kind(w, object, kind);
    Py_XDECREF(kind);
    Py_LeaveRecursiveCall();
    return result;
}

void
fj_variable_walk_start(FjVariableWalk *w, FjSeenList *seen)
{
    w->seen = *seen;
    *seen = (FjSeenList){.items = NULL};
    w->position = 0;
    w->ref = 0;
    w->same = 1;
    w->ran_python = w->counts_frames = 0;
    w->open = NULL;
    w->numbers = (FjAddressMap){.entries = NULL};
    w->reason = NULL;
    w->unsettled = 0;
}

int
fj_variable_walk(FjVariableWalk *w, PyObject *tree)
{
    return walk(w, tree);
}

/* The place of what a walk has met in an argument with this snapshot, or an empty place. */
static FjSeenCapture *
find_capture(FjSeenList *seen, unsigned long long number)
{
    FjSeenCapture *place = &seen->captures[0];
    for (Py_ssize_t i = 0; i < FJ_MEMO_ARGUMENTS; i++) {
        if (seen->captures[i].number == number) {
            return &seen->captures[i];
        }
        if (seen->captures[i].number < place->number) { /* the oldest snapshot */
            place = &seen->captures[i];
        }
    }
    place->number = 0;
    return place;
}

/* Pushes the Variables among these items, which are alive.  1, 0 with nothing pushed if one
 * has to be looked at, or -1 with MemoryError.  Runs no Python code. */
static int
push_seen(FjVariableWalk *w, const FjSeenCapture *known)
{
    Py_ssize_t before = w->variables->count;
    for (Py_ssize_t i = known->first; i < known->first + known->count; i++) {
        const FjSeen *seen = &w->seen.items[i];
        if (seen->trace_state == 0) {
            continue;
        }
        char *variable = (char *)(uintptr_t)seen->object;
        PyTypeObject *type = Py_TYPE(*(PyObject **)(variable + w->raw_value));
        if (*(PyObject **)(variable + seen->trace_state) != seen->state ||
            (type != w->registry->array_type && type != w->key_type)) {
            fj_leafbuf_truncate(w->variables, before);
            return 0;
        }
        if (fj_leafbuf_push(w->variables, (PyObject *)variable) < 0) {
            return -1;
        }
    }
    return 1;
}

int
fj_variable_walk_captured(FjVariableWalk *w, const FjCapture *capture)
{
    FjSeenCapture *known = find_capture(&w->seen, capture->number);
    Py_ssize_t first = w->position;
    uint32_t first_ref = w->ref;
    if (FJ_LIKELY(known->number != 0 && known->first == first &&
                  known->first_ref == first_ref && w->same && !w->ran_python)) {
        int result = push_seen(w, known);
        if (FJ_LIKELY(result > 0)) {
            w->position += known->count;
            w->ref += known->num_refs;
        }
        if (result != 0) {
            return result;
        }
    }
    int result = walk(w, capture->object);
    if (result > 0 && w->same && !w->ran_python) {
        *known = (FjSeenCapture){.number = capture->number,
                                 .first = first,
                                 .count = w->position - first,
                                 .first_ref = first_ref,
                                 .num_refs = w->ref - first_ref};
    }
    return result;
}

int
fj_variable_walk_fits(const FjVariableWalk *w, const FjStructure *structure)
{
    return w->position == (Py_ssize_t)structure->num_identities &&
           w->ref == structure->num_refs &&
           (w->ref == 0 || memcmp(w->seen.refs, structure->refs, w->ref * sizeof(FjRef)) == 0);
}

void
fj_variable_walk_end(FjVariableWalk *w, FjSeenList *seen)
{
    fj_compat_leave_frames(w->counts_frames);
    if (!w->same || w->position != w->seen.count || w->ref != w->seen.num_refs) {
        memset(w->seen.captures, 0, sizeof w->seen.captures);
        w->seen.num_refs = w->ref;
        truncate_seen(&w->seen, w->position);
    }
    FjSeenList old = *seen; /* another call has run meanwhile, in a finalizer too */
    *seen = w->seen;
    fj_seen_clear(&old);
    fj_address_map_clear(&w->numbers);
}
