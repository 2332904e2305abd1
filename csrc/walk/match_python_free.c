/* The python_free walk of a match (match.c).  A hit starts with it, unless the Structure has
 * `may_run_python`, and usually ends with it.
 *
 * No Python code runs.  Without `may_run_python`, every static (a leaf or field that isn't an
 * array) is inert (statics.h) or has a python_free snapshot (snapshot.h), no leaf needs
 * `is_array`, all keys are plain, and every container is read directly.  So nothing can change
 * or be freed during the walk, and borrowed references are safe.  Common containers allocate
 * nothing while the buffer is large enough.  A dict's key is hashed only if it isn't the
 * node's very object.  If an object can't be compared without Python code, or the node's kind
 * isn't handled here, the walk returns FJ_MATCH_NEEDS_PYTHON.
 *
 * If a large argument has been the same object for some calls, the walk records it (known.h).
 * While it is unchanged, it isn't walked. */
#include "walk/match.h"

#include "structure/fields.h"
#include "structure/statics.h"

#define VALUES_AT_ONCE 32 /* values of a dict that match_values passes on together */
#define TRIED 16          /* entries searched for a key before hashing it */

static int match_node(FjMatcher *m, PyObject *object);

/* Stops recording: this address no longer identifies the object. */
static inline void
fail_record(FjMatcher *m)
{
    if (m->recording != NULL) {
        fj_known_fail(m->recording);
    }
}

/* ---- leaves ---- */

/* Matches an object of a different type than most arrays with the node before `m->next`. */
static FJ_NOINLINE int
match_other(FjMatcher *m, PyObject *object)
{
    const FjNodeKind *kind = fj_registry_cached_kind(m->registry, Py_TYPE(object));
    if (kind == NULL || kind->code == FJ_MAYBE_ARRAY) {
        return FJ_MATCH_NEEDS_PYTHON;
    }
    if (!fj_structure_takes_number(m->structure, m->next - 1, object)) {
        return FJ_MATCH_NO;
    }
    return fj_leafbuf_push(m->arrays, object) < 0 ? FJ_MATCH_ERROR : FJ_MATCH_YES;
}

static int
match_array(FjMatcher *m, PyObject *object)
{
    if (FJ_LIKELY(fj_registry_is_array_type(m->registry, Py_TYPE(object)))) {
        return fj_leafbuf_push(m->arrays, object) < 0 ? FJ_MATCH_ERROR : FJ_MATCH_YES;
    }
    return match_other(m, object);
}

/* The value can change in place: even the same object is compared with its snapshot. */
static FJ_NOINLINE int
match_mutable_static(FjMatcher *m, const FjNode *node, PyObject *object)
{
    int same = fj_structure_match(m->structure, node, object);
    if (same == FJ_SNAPSHOT_UNSEEN) {
        return FJ_MATCH_NEEDS_PYTHON;
    }
    if (same > 0 && m->recording != NULL) {
        fj_known_add_static(m->recording, m->structure, node, object);
    }
    return same;
}

/* Two inert statics that are different objects. */
static FJ_NOINLINE int
match_inert(FjMatcher *m, PyObject *expected, PyObject *object)
{
    fail_record(m);
    return fj_static_equal(m->registry, expected, object);
}

/* Matches a static or the aux data of a custom node with `expected`, the node's own. */
static inline int
match_value(FjMatcher *m, const FjNode *node, PyObject *expected, PyObject *object)
{
    if (FJ_LIKELY(object == expected) && (node->flags & FJ_NODE_SELF_EQUAL)) {
        return FJ_MATCH_YES;
    }
    if (Py_TYPE(object) != Py_TYPE(expected)) {
        return FJ_MATCH_NO;
    }
    /* FJ_NODE_SELF_EQUAL isn't enough: the class could have gained an __eq__ since then. */
    return fj_static_is_inert(m->registry, expected) ? match_inert(m, expected, object)
                                                     : match_mutable_static(m, node, object);
}

/* ---- containers ---- */

static FJ_NOINLINE int
match_missing(FjMatcher *m, PyObject *object)
{
    fail_record(m);
    return object == NULL || object == fj_registry_missing(m->registry);
}

/* `object` is NULL if the child is absent. */
static inline int
match_child(FjMatcher *m, PyObject *object)
{
    if (FJ_UNLIKELY(m->next->code == FJ_MISSING)) {
        m->next++;
        return match_missing(m, object);
    }
    return object == NULL ? FJ_MATCH_NO : match_node(m, object);
}

/* match_items for one child. */
static inline int
match_item(FjMatcher *m, PyObject *object)
{
    const FjNode *node = m->next;
    if (object == node->aux && (node->flags & FJ_NODE_SELF_EQUAL)) {
        m->next++;
        return FJ_MATCH_YES;
    }
    if (node->code == FJ_ARRAY && object != NULL &&
        Py_TYPE(object) == m->registry->array_type) {
        m->next++;
        return fj_leafbuf_push(m->arrays, object) < 0 ? FJ_MATCH_ERROR : FJ_MATCH_YES;
    }
    return match_child(m, object);
}

/* Matches the children in an array.  Nearly all are arrays of the most common type or the very
 * inert statics of the Structure.  Both are matched here, without a function call. */
static int
match_items(FjMatcher *m, PyObject *const *items, uint32_t count)
{
    const FjNode *node = m->next;
    PyTypeObject *array_type = m->registry->array_type;
    for (uint32_t i = 0; i < count; i++) {
        PyObject *object = items[i];
        if (object == node->aux && (node->flags & FJ_NODE_SELF_EQUAL)) {
            node++;
        }
        else if (node->code == FJ_ARRAY && object != NULL && Py_TYPE(object) == array_type) {
            node++;
            if (FJ_UNLIKELY(fj_leafbuf_push(m->arrays, object) < 0)) {
                return FJ_MATCH_ERROR;
            }
        }
        else {
            m->next = node;
            int result = match_child(m, object);
            if (result != FJ_MATCH_YES) {
                return result;
            }
            node = m->next;
        }
    }
    m->next = node;
    return FJ_MATCH_YES;
}

static int
match_tuple(FjMatcher *m, const FjNode *node, PyObject *object)
{
    return PyTuple_GET_SIZE(object) == (Py_ssize_t)node->arity
               ? match_items(m, ((PyTupleObject *)object)->ob_item, node->arity)
               : FJ_MATCH_NO;
}

static int
match_list(FjMatcher *m, const FjNode *node, PyObject *object)
{
    return PyList_GET_SIZE(object) == (Py_ssize_t)node->arity
               ? match_items(m, ((PyListObject *)object)->ob_item, node->arity)
               : FJ_MATCH_NO;
}

/* Matches values of a dict until a key isn't the node's very object, and adds the number of
 * values to `*count`.  Nearly always the dict's next key is the node's next key; otherwise a
 * few entries are searched.  No key is hashed. */
static int
match_values(FjMatcher *m, const FjNode *node, PyObject *object, Py_ssize_t *count)
{
    PyObject *values[VALUES_AT_ONCE], *key, *value;
    Py_ssize_t size = PyTuple_GET_SIZE(node->aux), at = 0;
    int result, more;
    do {
        uint32_t number = 0;
        while (number < VALUES_AT_ONCE && *count < size &&
               fj_compat_dict_next(object, &at, &key, &value) &&
               key == PyTuple_GET_ITEM(node->aux, *count)) {
            values[number++] = value;
            ++*count;
        }
        more = number == VALUES_AT_ONCE;
        if (number < VALUES_AT_ONCE && *count < size) {
            key = PyTuple_GET_ITEM(node->aux, *count);
            value = fj_compat_dict_find_object(object, key, TRIED, &at);
            if (value != NULL) {
                values[number++] = value;
                ++*count;
                more = 1;
            }
        }
        result = match_items(m, values, number);
    } while (result == FJ_MATCH_YES && more);
    return result;
}

static int
match_dict(FjMatcher *m, const FjNode *node, PyObject *object)
{
    Py_ssize_t size = PyTuple_GET_SIZE(node->aux), i = 0;
    if (PyDict_GET_SIZE(object) != size) {
        return FJ_MATCH_NO;
    }
    int result = FJ_MATCH_YES;
    if (node->code == FJ_DEFAULT_DICT) {
        PyObject *factory = PyObject_GetAttrString(object, "default_factory");
        if (factory == NULL) {
            return FJ_MATCH_ERROR;
        }
        result = match_node(m, factory);
        Py_DECREF(factory); /* the dict holds it */
    }
    if (result == FJ_MATCH_YES) {
        result = match_values(m, node, object, &i);
    }
    if (result == FJ_MATCH_YES && i < size && !fj_compat_dict_is_unicode(object)) {
        return FJ_MATCH_NEEDS_PYTHON; /* looking up a key can run an __eq__ */
    }
    for (; i < size && result == FJ_MATCH_YES; i++) {
        PyObject *value = PyDict_GetItemWithError(object, PyTuple_GET_ITEM(node->aux, i));
        if (value == NULL) {
            return PyErr_Occurred() ? FJ_MATCH_ERROR : FJ_MATCH_NO;
        }
        result = match_node(m, value);
    }
    return result;
}

static inline int
match_fields(FjMatcher *m, const FjNode *node, const FjFieldView *view)
{
    int result = FJ_MATCH_YES;
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        result = match_item(m, fj_fields_peek(view, fj_node_kind(node), i));
    }
    return result;
}

static int
match_module(FjMatcher *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    if (FJ_UNLIKELY(fj_fields_view(object, &view) < 0)) {
        return FJ_MATCH_ERROR;
    }
    if (FJ_UNLIKELY((view.used != fj_node_kind_fields(kind)) !=
                    !!(node->flags & FJ_NODE_WRAPPER))) {
        return FJ_MATCH_NO;
    }
    if (FJ_LIKELY(view.values != NULL && fj_fields_in_order(kind) &&
                  !(node->flags & FJ_NODE_WRAPPER))) {
        return match_items(m, view.values, node->arity);
    }
    return fj_fields_are_python_free(&view) ? match_fields(m, node, &view)
                                            : FJ_MATCH_NEEDS_PYTHON;
}

/* Leaves a field that isn't in its storage to getattr. */
static int
match_object(FjMatcher *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    if (!fj_fields_are_plain(kind) || !fj_fields_view_stored(object, kind, &view)) {
        return FJ_MATCH_NEEDS_PYTHON;
    }
    int result = FJ_MATCH_YES;
    if (view.values != NULL && fj_fields_in_order(kind) && kind->in_dict == node->arity) {
        for (uint32_t i = 0; i < node->arity; i++) {
            result = view.values[i] == NULL ? FJ_MATCH_NEEDS_PYTHON : result;
        }
        return result == FJ_MATCH_YES ? match_items(m, view.values, node->arity) : result;
    }
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        PyObject *value = fj_fields_peek_object(object, &view, kind, i);
        result = value == NULL ? FJ_MATCH_NEEDS_PYTHON : match_item(m, value);
    }
    return result;
}

/* Pushes a numbered object, and adds a container to the current record. */
static FJ_NOINLINE void
note_container(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (m->recording != NULL) {
        fj_known_add(m->recording, m->structure, node, object,
                     m->arrays->count - m->first_array);
    }
    if (node->flags & FJ_NODE_IDENTITY) {
        fj_leafbuf_push_reserved(m->objects, object);
    }
}

static int
match_container(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (FJ_UNLIKELY(node->flags & FJ_NODE_IDENTITY || m->recording != NULL)) {
        note_container(m, node, object);
    }
    switch (node->code) {
    case FJ_TUPLE:
        if (object == node->aux) { /* can't have changed */
            m->next = fj_structure_skip(m->structure, node);
            return FJ_MATCH_YES;
        }
        return PyTuple_CheckExact(object) ? match_tuple(m, node, object) : FJ_MATCH_NO;
    case FJ_LIST:
        return PyList_CheckExact(object) ? match_list(m, node, object) : FJ_MATCH_NO;
    case FJ_MODULE:
        return Py_TYPE(object) == fj_node_kind(node)->type ? match_module(m, node, object)
                                                           : FJ_MATCH_NO;
    case FJ_OBJECT:
        return Py_TYPE(object) == fj_node_kind(node)->type ? match_object(m, node, object)
                                                           : FJ_MATCH_NO;
    default:
        break;
    }
    if (Py_TYPE(object) != fj_structure_info(m->structure, node)->type) {
        return FJ_MATCH_NO;
    }
    switch (node->code) {
    case FJ_NAMEDTUPLE:
        return match_tuple(m, node, object);
    case FJ_DICT:
    case FJ_DEFAULT_DICT:
        return match_dict(m, node, object);
    case FJ_CUSTOM:
        return node->flags & FJ_NODE_ITSELF
                   ? match_value(m, node, fj_structure_value(node), object)
                   : FJ_MATCH_NEEDS_PYTHON;
    default:
        return FJ_MATCH_NEEDS_PYTHON;
    }
}

/* The only stack check: the walk goes no deeper than the Structure. */
static int
match_deep(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (Py_EnterRecursiveCall(" while matching a pytree")) {
        return FJ_MATCH_ERROR;
    }
    int result = match_container(m, node, object);
    Py_LeaveRecursiveCall();
    return result;
}

/* The object with this number was pushed before the REF. */
static FJ_NOINLINE int
match_ref(FjMatcher *m, const FjNode *node, PyObject *object)
{
    uint32_t number = fj_node_number(node);
    if (m->recording != NULL) {
        fj_known_add_ref(m->recording, object, number);
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): only arguments have a REF. */
    return m->objects->items[number] == object;
}

static int
match_node(FjMatcher *m, PyObject *object)
{
    const FjNode *node = m->next++;
    if (FJ_UNLIKELY(node->code == FJ_NONE)) {
        return object == Py_None;
    }
    switch (node->code) {
    case FJ_ARRAY:
        return match_array(m, object);
    case FJ_STATIC:
        return match_value(m, node, node->aux, object);
    case FJ_REF:
        return match_ref(m, node, object);
    default:
        break;
    }
    return FJ_UNLIKELY(node->flags & FJ_NODE_DEEP) ? match_deep(m, node, object)
                                                   : match_container(m, node, object);
}

/* Checks a large argument, or matches it and records it if that is worthwhile. */
static FJ_NOINLINE int
match_large(FjMatcher *m, PyObject *object, FjKnownArgument *argument)
{
    Py_ssize_t first_object = m->objects == NULL ? 0 : m->objects->count;
    if (FJ_LIKELY(fj_known_check(argument, m->registry, object))) {
        m->next = fj_structure_skip(m->structure, m->next);
        return fj_known_push(argument, m->arrays, m->objects);
    }
    if (!fj_known_start(argument, object)) {
        return match_node(m, object);
    }
    m->recording = argument;
    m->first_array = m->arrays->count;
    int result = match_node(m, object);
    m->recording = NULL;
    fj_known_end(argument, result == FJ_MATCH_YES, object, m->arrays->items + m->first_array,
                 m->arrays->count - m->first_array,
                 m->objects == NULL ? NULL : m->objects->items + first_object,
                 m->objects == NULL ? 0 : m->objects->count - first_object);
    return result;
}

static int
match_argument(FjMatcher *m, PyObject *object, FjKnownArgument *argument)
{
    /* Not match_child, which treats registry->missing as absent: a caller can pass it. */
    if (m->next->code == FJ_MISSING) {
        m->next++;
        return object == NULL;
    }
    return object == NULL     ? FJ_MATCH_NO
           : argument != NULL ? match_large(m, object, argument)
                              : match_node(m, object);
}

int
fj_match_python_free(FjMatcher *m, PyObject *const *objects, Py_ssize_t count,
                     FjKnownArguments *known)
{
    int result = FJ_MATCH_YES;
    for (Py_ssize_t i = 0; i < count && result == FJ_MATCH_YES; i++) {
        result = match_argument(m, objects[i], known == NULL ? NULL : fj_known_find(known, i));
    }
    return result;
}
