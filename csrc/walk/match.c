/* The walk of a cache hit: compares a tree with a Structure and collects the tree's arrays.
 *
 * It goes through the nodes of the Structure and through the tree side by side, pushes each
 * array when it meets it, and stops at the first difference.  There are two kinds of walk:
 *
 * python_free       The walk runs no Python code: every static (a leaf or field that is not an
 *                   array) is inert (statics.h) or has contents (contents.h), and every
 *                   container is read directly.  So
 *                   nothing can change or be freed during the walk, and borrowed references
 *                   are safe.  For the common containers nothing is allocated as long as the
 *                   buffer is large enough.  An object that cannot be compared without Python
 *                   code ends the walk with NEEDS_PYTHON.
 * holds_references  The walk may run Python code: `key` functions, __hash__ and __eq__ of
 *                   mutable statics, comparisons of a dict's keys, `classify` for a new type,
 *                   `is_array` for types that are asked each time (tracers),
 *                   the functions of custom nodes, and getattr for objects.  So it holds a
 * reference to each object that it looks at, and checks sizes again after each child.
 *
 * match_all starts with the python_free walk unless fj_structure_runs_python.
 * After NEEDS_PYTHON it starts over with the holds_references walk.
 *
 * A large argument that has been the same object for some calls is recorded while the
 * python_free walk goes through it (known.h), and is not walked as long as it is unchanged.
 *
 * A numbered object (Sharing in structure.h) is pushed as well, before its children.  A REF
 * matches the object of its number, and no two numbered objects may be one.
 *
 * Invariant: unless the result is FJ_MATCH_YES, the buffers are truncated to their former
 * sizes.
 */
#include "walk/match.h"

#include "structure/fields.h"
#include "structure/statics.h"

#define NEEDS_PYTHON (-2)
#define VALUES_AT_ONCE 32 /* how many values of a dict match_values passes on together */
#define NEAR 16           /* how many entries it searches for a key before it hashes the key */

typedef struct {
    FjStructure *structure;
    FjRegistry *registry;
    FjLeafBuf *arrays;
    FjLeafBuf *objects;         /* the numbered ones; or NULL if there are none */
    FjKnownArgument *recording; /* the record that is being made on a python_free walk, or NULL
                                 */
    Py_ssize_t first_array;     /* the number of arrays before those of this argument */
    const FjNode *next;
    int holds_references;
} Match;

static int match_node(Match *m, PyObject *object);

/* Is called where an address does not stand for what it has matched. */
static inline void
fail_record(Match *m)
{
    if (m->recording != NULL) {
        fj_known_fail(m->recording);
    }
}

/* ---- leaves ---- */

/* Matches a leaf that is no array with an array's node. */
static FJ_NOINLINE int
match_number(Match *m, const FjNode *node, PyObject *object)
{
    if (!(node->flags & FJ_NODE_NUMBERS) ||
        !fj_registry_traces_in(m->registry, Py_TYPE(object))) {
        return FJ_MATCH_NO;
    }
    return fj_leafbuf_push(m->arrays, object) < 0 ? FJ_MATCH_ERROR : FJ_MATCH_YES;
}

static int
match_array(Match *m, PyObject *object)
{
    if (FJ_LIKELY(fj_registry_is_array_type(m->registry, Py_TYPE(object)))) {
        return fj_leafbuf_push(m->arrays, object) < 0 ? FJ_MATCH_ERROR : FJ_MATCH_YES;
    }
    FjNodeKind *kind = fj_registry_cached_kind(m->registry, Py_TYPE(object));
    if (kind != NULL && kind->code != FJ_MAYBE_ARRAY) {
        return match_number(m, m->next - 1, object);
    }
    if (!m->holds_references) {
        return NEEDS_PYTHON;
    }
    kind = fj_registry_kind(m->registry, object);
    if (kind == NULL) {
        return FJ_MATCH_ERROR;
    }
    FjKindCode code = fj_registry_code(m->registry, kind);
    int is_array =
        code == FJ_MAYBE_ARRAY ? fj_registry_is_array(m->registry, object) : code == FJ_ARRAY;
    Py_DECREF(kind);
    if (is_array > 0 && fj_leafbuf_push(m->arrays, object) < 0) {
        return FJ_MATCH_ERROR;
    }
    return is_array;
}

/* Whether the node's own value is as it was when it was hashed, and the object is this value
 * or equal to it, seen without freezing either.  FJ_MATCH_NO if that cannot be seen. */
static int
match_contents(Match *m, const FjNode *node, PyObject *object)
{
    PyObject *expected = fj_structure_value(node);
    if (!fj_structure_is_same(m->structure, node)) {
        return FJ_MATCH_NO;
    }
    if (object == expected) {
        if (m->recording != NULL) {
            fj_known_add_contents(m->recording, m->structure, node);
        }
        return FJ_MATCH_YES;
    }
    fail_record(m);
    int same = fj_contents_equal(m->registry, expected, object, !m->holds_references);
    /* Python code that has run may have changed the node's value. */
    return same > 0 && !fj_structure_is_same(m->structure, node) ? FJ_MATCH_NO : same;
}

/* A static or aux data that is not inert may have changed in place, even if it is the same
 * object.  If its contents do not show that it has not, so its frozen copy is compared with
 * the Structure's.  A value with an __eq__ of its own is its own frozen copy: a changed hash
 * shows that it has changed. */
static FJ_NOINLINE int
match_mutable_static(Match *m, const FjNode *node, PyObject *object, int field)
{
    int same = match_contents(m, node, object);
    if (same != FJ_MATCH_NO) {
        return same;
    }
    if (!m->holds_references) {
        return NEEDS_PYTHON;
    }
    int result = fj_structure_has(m->structure, node, object, field);
    return result > 0 && fj_structure_take_contents(m->structure, node) < 0 ? FJ_MATCH_ERROR
                                                                            : result;
}

/* A static of an FJ_MAYBE_ARRAY type may have become an array, even if it is the same object.
 */
static int
match_maybe_array(Match *m, const FjNode *node, PyObject *object)
{
    if (!m->holds_references) {
        return NEEDS_PYTHON;
    }
    int is_array = fj_registry_is_array(m->registry, object);
    if (is_array != 0) {
        return is_array < 0 ? FJ_MATCH_ERROR : FJ_MATCH_NO;
    }
    return match_mutable_static(m, node, object, 0);
}

/* Matches two inert statics, which are not one object. */
static FJ_NOINLINE int
match_inert(Match *m, PyObject *expected, PyObject *object)
{
    fail_record(m);
    return fj_static_equal(m->registry, expected, object);
}

/* Matches a static or the aux data of a custom node with the node's own, `expected`. */
static inline int
match_value(Match *m, const FjNode *node, PyObject *expected, PyObject *object, int field)
{
    if (FJ_LIKELY(object == expected) && (node->flags & FJ_NODE_SELF_EQUAL)) {
        return FJ_MATCH_YES;
    }
    if (Py_TYPE(object) != Py_TYPE(expected)) {
        return FJ_MATCH_NO;
    }
    if (FJ_UNLIKELY(node->flags & FJ_NODE_MAYBE_ARRAY)) {
        return match_maybe_array(m, node, object);
    }
    /* FJ_NODE_SELF_EQUAL is not enough here: the class may have been given an __eq__ since the
     * flag was set. */
    if (fj_static_is_inert(m->registry, expected)) {
        return match_inert(m, expected, object);
    }
    return match_mutable_static(m, node, object, field);
}

/* ---- containers ---- */

static FJ_NOINLINE int
match_missing(Match *m, PyObject *object)
{
    fail_record(m);
    return object == NULL || object == fj_registry_missing(m->registry);
}

/* Matches a child, which is NULL if it is absent. */
static inline int
match_child(Match *m, PyObject *object)
{
    if (FJ_UNLIKELY(m->next->code == FJ_MISSING)) {
        m->next++;
        return match_missing(m, object);
    }
    return object == NULL ? FJ_MATCH_NO : match_node(m, object);
}

/* Matches a child on a python_free walk: match_items for a single one. */
static inline int
match_item(Match *m, PyObject *object)
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

/* Matches the children in an array, on a python_free walk.  Nearly all children are either
 * inert statics that are the same object or arrays of the most common type: both are matched
 * here, without a function call. */
static int
match_items(Match *m, PyObject *const *items, uint32_t count)
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
match_tuple(Match *m, const FjNode *node, PyObject *object)
{
    if (PyTuple_GET_SIZE(object) != (Py_ssize_t)node->arity) {
        return FJ_MATCH_NO;
    }
    if (FJ_LIKELY(!m->holds_references)) {
        return match_items(m, ((PyTupleObject *)object)->ob_item, node->arity);
    }
    int result = FJ_MATCH_YES;
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        result = match_node(m, PyTuple_GET_ITEM(object, i));
    }
    return result;
}

static int
match_list(Match *m, const FjNode *node, PyObject *object)
{
    if (FJ_LIKELY(!m->holds_references)) {
        return PyList_GET_SIZE(object) == (Py_ssize_t)node->arity
                   ? match_items(m, ((PyListObject *)object)->ob_item, node->arity)
                   : FJ_MATCH_NO;
    }
    for (uint32_t i = 0; i < node->arity; i++) {
        if (PyList_GET_SIZE(object) != (Py_ssize_t)node->arity) {
            return FJ_MATCH_NO;
        }
        int result = match_node(m, PyList_GET_ITEM(object, i));
        if (result != FJ_MATCH_YES) {
            return result;
        }
    }
    return PyList_GET_SIZE(object) == (Py_ssize_t)node->arity;
}

/* Whether the keys of a dict are exactly those of the node.  Used for dicts whose keys are not
 * all str and for OrderedDicts, whose order counts. */
static int
match_keys(Match *m, const FjNode *node, PyObject *object)
{
    int result = FJ_MATCH_ERROR;
    PyObject *tuple = NULL;
    PyObject *keys = PySequence_List(object);
    if (keys == NULL) {
        return FJ_MATCH_ERROR;
    }
    if (node->code != FJ_ORDERED_DICT && PyList_Sort(keys) < 0) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear(); /* flatten.c raises it again, with the path */
            result = FJ_MATCH_NO;
        }
    }
    else if ((tuple = PyList_AsTuple(keys)) != NULL) {
        result = fj_structure_has(m->structure, node, tuple, 1);
    }
    Py_XDECREF(tuple);
    Py_DECREF(keys);
    return result;
}

/* Matches values of a dict on a python_free walk, up to the first key of which the dict does
 * not have the very object, and adds the number of values to `*count`.  It looks up no key:
 * the dict's next key is nearly always the node's next key, and a small dict is searched. */
static int
match_values(Match *m, const FjNode *node, PyObject *object, Py_ssize_t *count)
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
            value = fj_compat_dict_find_object(object, key, NEAR, &at);
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
match_dict(Match *m, const FjNode *node, PyObject *object)
{
    Py_ssize_t size = PyTuple_GET_SIZE(node->aux), i = 0;
    int plain = node->flags & FJ_NODE_PLAIN_KEYS && node->code != FJ_ORDERED_DICT;
    /* Whether the keys are exactly str, so that looking up one runs no Python code. */
    int has_str_keys = plain && fj_compat_dict_is_unicode(object);
    if (PyDict_GET_SIZE(object) != size) {
        return FJ_MATCH_NO;
    }
    int result = FJ_MATCH_YES;
    if (m->holds_references && !has_str_keys) {
        result = match_keys(m, node, object);
    }
    else if (!plain) {
        result = NEEDS_PYTHON;
    }
    if (result == FJ_MATCH_YES && node->code == FJ_DEFAULT_DICT) {
        PyObject *factory = PyObject_GetAttrString(object, "default_factory");
        if (factory == NULL) {
            return FJ_MATCH_ERROR;
        }
        result = match_node(m, factory);
        Py_DECREF(factory); /* the dict holds it */
    }
    if (result == FJ_MATCH_YES && !m->holds_references) {
        result = match_values(m, node, object, &i);
        if (result == FJ_MATCH_YES && i < size && !has_str_keys) {
            return NEEDS_PYTHON;
        }
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

static int
match_module_holding(Match *m, const FjNode *node, PyObject *object)
{
    int wrapper = fj_fields_is_wrapper(object, fj_node_kind(node));
    if (wrapper != !!(node->flags & FJ_NODE_WRAPPER)) {
        return wrapper < 0 ? FJ_MATCH_ERROR : FJ_MATCH_NO;
    }
    int result = FJ_MATCH_YES;
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        PyObject *value = NULL;
        if (fj_fields_get(object, fj_node_kind(node), i, fj_registry_missing(m->registry),
                          &value) < 0) {
            return FJ_MATCH_ERROR;
        }
        result = match_child(m, value);
        Py_XDECREF(value);
    }
    return result;
}

/* Matches the fields of a Module one by one. */
static inline int
match_fields(Match *m, const FjNode *node, const FjFieldView *view)
{
    int result = FJ_MATCH_YES;
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        result = match_item(m, fj_fields_peek(view, fj_node_kind(node), i));
    }
    return result;
}

/* Matches a Module whose attributes are in a dict.  Not inlined, so that its array takes no
 * stack where there is no dict. */
static FJ_NOINLINE int
match_module_dict(Match *m, const FjNode *node, const FjFieldView *view)
{
    PyObject *values[FJ_FIELDS_INLINE];
    if (view->dict != NULL && node->arity <= FJ_FIELDS_INLINE &&
        fj_fields_read_dict(view->dict, fj_node_kind(node), node->arity, values)) {
        return match_items(m, values, node->arity);
    }
    return view->python_free || fj_compat_dict_is_unicode(view->dict)
               ? match_fields(m, node, view)
               : NEEDS_PYTHON;
}

static int
match_module(Match *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    if (m->holds_references) {
        return match_module_holding(m, node, object);
    }
    if (FJ_UNLIKELY(fj_fields_view(object, &view) < 0)) {
        return FJ_MATCH_ERROR;
    }
    if (FJ_UNLIKELY((view.used != fj_node_kind_fields(kind)) !=
                    !!(node->flags & FJ_NODE_WRAPPER))) {
        return FJ_MATCH_NO;
    }
    if (FJ_UNLIKELY(view.values == NULL)) {
        return match_module_dict(m, node, &view);
    }
    if (FJ_LIKELY(fj_fields_in_order(kind) && !(node->flags & FJ_NODE_WRAPPER))) {
        return match_items(m, view.values, node->arity);
    }
    return match_fields(m, node, &view);
}

static int
match_object_holding(Match *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    int result = FJ_MATCH_YES;
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        PyObject *value = fj_fields_getattr(object, kind, i);
        if (value == NULL) {
            return FJ_MATCH_ERROR;
        }
        result = match_node(m, value); /* the node of a dict field is a dict */
        Py_DECREF(value);
    }
    return result;
}

/* On a python_free walk, a field that is not where it is stored is left to getattr. */
static int
match_object(Match *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    if (m->holds_references) {
        return match_object_holding(m, node, object);
    }
    if (!fj_fields_are_plain(kind)) {
        return NEEDS_PYTHON;
    }
    if (FJ_UNLIKELY(fj_fields_view_object(object, kind, &view) < 0)) {
        return FJ_MATCH_ERROR;
    }
    if (!view.python_free && !fj_compat_dict_is_unicode(view.dict)) {
        return NEEDS_PYTHON;
    }
    int result = FJ_MATCH_YES;
    if (view.values != NULL && fj_fields_in_order(kind) && kind->in_dict == node->arity) {
        for (uint32_t i = 0; i < node->arity; i++) {
            result = view.values[i] == NULL ? NEEDS_PYTHON : result;
        }
        return result == FJ_MATCH_YES ? match_items(m, view.values, node->arity) : result;
    }
    for (uint32_t i = 0; i < node->arity && result == FJ_MATCH_YES; i++) {
        PyObject *value = fj_fields_peek_object(object, &view, kind, i);
        result = value == NULL ? NEEDS_PYTHON : match_item(m, value);
    }
    return result;
}

static int
match_custom(Match *m, const FjNode *node, PyObject *object)
{
    int result = FJ_MATCH_ERROR;
    PyObject *children = NULL, *aux = NULL, *tuple = NULL;
    PyObject *parts = fj_registry_flatten(m->registry, object, &children, &aux);
    if (parts == NULL) {
        return FJ_MATCH_ERROR;
    }
    result = match_value(m, node, fj_structure_value(node), aux, 1);
    if (result == FJ_MATCH_YES) {
        tuple = fj_tuple_of(children);
        result = tuple == NULL ? FJ_MATCH_ERROR : match_tuple(m, node, tuple);
    }
    Py_XDECREF(tuple);
    Py_DECREF(parts);
    return result;
}

/* ---- the walk ---- */

/* Pushes a numbered object, and adds a container to the record that is being made.  0, or -1
 * with MemoryError. */
static FJ_NOINLINE int
note_container(Match *m, const FjNode *node, PyObject *object)
{
    if (m->recording != NULL) {
        fj_known_add(m->recording, m->structure, node, object,
                     m->arrays->count - m->first_array);
    }
    return node->flags & FJ_NODE_IDENTITY ? fj_leafbuf_push(m->objects, object) : 0;
}

static int
match_container(Match *m, const FjNode *node, PyObject *object)
{
    if (FJ_UNLIKELY(node->flags & FJ_NODE_IDENTITY || m->recording != NULL) &&
        note_container(m, node, object) < 0) {
        return FJ_MATCH_ERROR;
    }
    switch (node->code) {
    case FJ_TUPLE:
        if (object == node->aux) { /* it cannot have changed */
            m->next = fj_structure_skip(m->structure, node);
            return FJ_MATCH_YES;
        }
        return PyTuple_CheckExact(object) ? match_tuple(m, node, object) : FJ_MATCH_NO;
    case FJ_LIST:
        return PyList_CheckExact(object) ? match_list(m, node, object) : FJ_MATCH_NO;
    case FJ_MODULE:
        return Py_TYPE(object) == fj_node_kind(node)->type ? match_module(m, node, object)
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
    case FJ_OBJECT:
        return match_object(m, node, object);
    case FJ_CUSTOM:
        if (node->flags & FJ_NODE_ITSELF) {
            return match_value(m, node, fj_structure_value(node), object, 1);
        }
        return m->holds_references ? match_custom(m, node, object) : NEEDS_PYTHON;
    default:
        return match_dict(m, node, object);
    }
}

/* The walk goes no deeper than the Structure, and looks at the stack here only. */
static int
match_deep(Match *m, const FjNode *node, PyObject *object)
{
    if (Py_EnterRecursiveCall(" while matching a pytree")) {
        return FJ_MATCH_ERROR;
    }
    int result = match_container(m, node, object);
    Py_LeaveRecursiveCall();
    return result;
}

/* The object of this number comes before the REF. */
static FJ_NOINLINE int
match_ref(Match *m, const FjNode *node, PyObject *object)
{
    uint32_t number = fj_node_number(node);
    if (m->recording != NULL) {
        fj_known_add_ref(m->recording, object, number);
    }
    return m->objects->items[number] == object;
}

static int
match_node_holding(Match *m, const FjNode *node, PyObject *object)
{
    if (node->code == FJ_REF) {
        return match_ref(m, node, object);
    }
    if (Py_EnterRecursiveCall(" while matching a pytree")) {
        return FJ_MATCH_ERROR;
    }
    Py_INCREF(object);
    int result = node->code == FJ_ARRAY ? match_array(m, object)
                 : node->code == FJ_STATIC
                     ? match_value(m, node, node->aux, object, node->flags & FJ_NODE_FIELD)
                     : match_container(m, node, object);
    Py_DECREF(object);
    Py_LeaveRecursiveCall();
    return result;
}

static int
match_node(Match *m, PyObject *object)
{
    const FjNode *node = m->next++;
    if (FJ_UNLIKELY(node->code == FJ_NONE)) {
        return object == Py_None;
    }
    if (FJ_UNLIKELY(m->holds_references)) {
        return match_node_holding(m, node, object);
    }
    switch (node->code) {
    case FJ_ARRAY:
        return match_array(m, object);
    case FJ_STATIC:
        return match_value(m, node, node->aux, object, node->flags & FJ_NODE_FIELD);
    case FJ_REF:
        return match_ref(m, node, object);
    default:
        break;
    }
    return FJ_UNLIKELY(node->flags & FJ_NODE_DEEP) ? match_deep(m, node, object)
                                                   : match_container(m, node, object);
}

/* Matches a large argument, and records it if that is worth it. */
static FJ_NOINLINE int
match_large(Match *m, PyObject *object, FjKnownArgument *argument)
{
    Py_ssize_t first_object = m->objects == NULL ? 0 : m->objects->count;
    if (FJ_LIKELY(fj_known_check(argument, m->structure, object))) {
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
match_argument(Match *m, PyObject *object, FjKnownArgument *argument)
{
    /* Not match_child, which takes registry->missing for absent: a caller may pass it. */
    if (m->next->code == FJ_MISSING) {
        m->next++;
        return object == NULL;
    }
    return object == NULL     ? FJ_MATCH_NO
           : argument != NULL ? match_large(m, object, argument)
                              : match_node(m, object);
}

/* One walk of all arguments. */
static int
match_each(Match *m, PyObject *const *objects, Py_ssize_t count, FjKnownArguments *known)
{
    int result = FJ_MATCH_YES;
    if (fj_compat_enter_frames(m->holds_references) < 0) {
        return FJ_MATCH_ERROR;
    }
    for (Py_ssize_t i = 0; i < count && result == FJ_MATCH_YES; i++) {
        result = match_argument(m, objects[i], known == NULL ? NULL : fj_known_find(known, i));
    }
    fj_compat_leave_frames(m->holds_references);
    if (result == FJ_MATCH_YES && m->structure->num_identities > 0) {
        result = fj_known_are_distinct(known, m->objects->items, m->objects->count);
    }
    return result;
}

static FjMatch
match_all(Match *m, PyObject *const *objects, Py_ssize_t count, FjKnownArguments *known)
{
    Py_ssize_t before = m->arrays->count;
    const FjNode *first = m->next;
    m->holds_references = fj_structure_runs_python(m->structure);
    for (;;) {
        /* What was learned before Python code runs is nothing to rely on. */
        int result = match_each(m, objects, count, m->holds_references ? NULL : known);
        if (FJ_LIKELY(result == FJ_MATCH_YES)) {
            return FJ_MATCH_YES;
        }
        fj_leafbuf_truncate(m->arrays, before);
        if (m->objects != NULL) {
            fj_leafbuf_truncate(m->objects, 0);
        }
        if (result != NEEDS_PYTHON) {
            return (FjMatch)result;
        }
        m->next = first;
        m->holds_references = 1;
    }
}

FjMatch
fj_match_arguments(FjStructure *structure, FjKnownArguments **known,
                   PyObject *const *arguments, FjLeafBuf *arrays, FjLeafBuf *objects)
{
    Match m = {.structure = structure,
               .registry = structure->registry,
               .arrays = arrays,
               .objects = objects,
               .next = structure->nodes + 1};
    if (*known == NULL) {
        *known = fj_known_new(structure);
    }
    if (structure->num_identities > 0 &&
        fj_leafbuf_reserve(objects, (Py_ssize_t)structure->num_identities) < 0) {
        return FJ_MATCH_ERROR;
    }
    return match_all(&m, arguments, structure->nodes[0].arity, *known);
}

FjMatch
fj_match_tree(FjStructure *structure, PyObject *tree, FjLeafBuf *arrays)
{
    Match m = {.structure = structure,
               .registry = structure->registry,
               .arrays = arrays,
               .next = structure->nodes};
    return match_all(&m, &tree, 1, NULL);
}
