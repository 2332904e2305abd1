/* Matches a tree with the nodes of a Structure, borrowed or held: see match.c.
 *
 * Python code runs only in held mode: in `classify` for a new type, in `is_array`, in reading
 * a container, in comparing statics and keys, and in finalizers. */
#include "walk/match_nodes.h"

#include "structure/fields.h"
#include "structure/statics.h"
#include "walk/kind_dicts.h"

/* These functions return 1, 0, -1 or, in borrowed mode, FJ_NEEDS_PYTHON. */

/* ---- leaves ---- */

/* (P) */
static int
is_array(FjMatcher *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_registry_kind(m->registry, object);
    if (kind == NULL) {
        return -1;
    }
    FjKindCode code = fj_registry_code(m->registry, kind);
    Py_DECREF(kind);
    return code == FJ_MAYBE_ARRAY
               ? fj_registry_is_array(m->registry, object)
               : code == FJ_ARRAY || fj_structure_takes_number(m->structure, node, object);
}

/* Matches an object of a different type than most arrays with an ARRAY. */
static FJ_NOINLINE int
match_other(FjMatcher *m, const FjNode *node, PyObject *object)
{
    const FjNodeKind *kind = fj_registry_cached_kind(m->registry, Py_TYPE(object));
    if (!m->holds && (kind == NULL || kind->code == FJ_MAYBE_ARRAY)) {
        return FJ_NEEDS_PYTHON;
    }
    int result = m->holds ? is_array(m, node, object)
                          : fj_structure_takes_number(m->structure, node, object);
    return result > 0 && fj_leafbuf_push(m->arrays, object) < 0 ? -1 : result;
}

static int
match_array(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (FJ_LIKELY(fj_registry_is_array_type(m->registry, Py_TYPE(object)))) {
        return fj_leafbuf_push(m->arrays, object) < 0 ? -1 : 1;
    }
    return match_other(m, node, object);
}

/* match_value in held mode.  Even the same object can have become an array. */
static FJ_NOINLINE int
match_held_value(FjMatcher *m, const FjNode *node, PyObject *object)
{
    int is_now_array =
        node->flags & FJ_NODE_MAYBE_ARRAY ? fj_registry_is_array(m->registry, object) : 0;
    return is_now_array < 0 ? -1
           : is_now_array   ? 0
                            : fj_structure_has(m->structure, node, object);
}

/* The value can change in place: even the same object is compared with its snapshot. */
static FJ_NOINLINE int
match_mutable_static(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (m->attempts != NULL && m->attempts->same_object_only &&
        object != fj_structure_value(node)) {
        m->attempts->skipped_mutable = 1;
        return 0;
    }
    return fj_structure_match(m->structure, node, object);
}

/* Matches a static or the aux data of a custom node with `expected`, the node's own. */
static inline int
match_value(FjMatcher *m, const FjNode *node, PyObject *expected, PyObject *object)
{
    if (FJ_LIKELY(object == expected) && (node->flags & FJ_NODE_FIXED)) {
        return 1;
    }
    if (Py_TYPE(object) != Py_TYPE(expected)) {
        return 0;
    }
    if (FJ_UNLIKELY(m->holds)) {
        return match_held_value(m, node, object);
    }
    /* FJ_NODE_FIXED isn't enough: the class could have gained an __eq__ since then. */
    return fj_static_is_inert(m->registry, expected)
               ? fj_static_equal(m->registry, expected, object)
               : match_mutable_static(m, node, object);
}

/* ---- children ---- */

/* `object` is NULL if the child is absent. */
static inline int
match_child(FjMatcher *m, PyObject *object)
{
    if (FJ_UNLIKELY(m->next->code == FJ_MISSING)) {
        m->next++;
        return object == NULL || object == fj_registry_missing(m->registry);
    }
    return object == NULL ? 0 : fj_match_node(m, object);
}

/* match_children for one child. */
static inline int
match_field(FjMatcher *m, PyObject *object)
{
    const FjNode *node = m->next;
    if (object == node->aux && (node->flags & FJ_NODE_FIXED)) {
        m->next++;
        return 1;
    }
    if (node->code == FJ_ARRAY && object != NULL &&
        Py_TYPE(object) == m->registry->array_type) {
        m->next++;
        return fj_leafbuf_push(m->arrays, object) < 0 ? -1 : 1;
    }
    return match_child(m, object);
}

/* Matches children that nothing else can change or drop.  Nearly all are arrays of the most
 * common type or the fixed statics of the Structure itself.  Both are matched here, without a
 * function call. */
static int
match_children(FjMatcher *m, PyObject *const *children, uint32_t count)
{
    const FjNode *node = m->next;
    PyTypeObject *array_type = m->registry->array_type;
    for (uint32_t i = 0; i < count; i++) {
        PyObject *object = children[i];
        if (object == node->aux && (node->flags & FJ_NODE_FIXED)) {
            node++;
        }
        else if (node->code == FJ_ARRAY && object != NULL && Py_TYPE(object) == array_type) {
            node++;
            if (FJ_UNLIKELY(fj_leafbuf_push(m->arrays, object) < 0)) {
                return -1;
            }
        }
        else {
            m->next = node;
            int result = match_child(m, object);
            if (result <= 0) {
                return result;
            }
            node = m->next;
        }
    }
    m->next = node;
    return 1;
}

/* Copies borrowed children and holds them; their first node is `node`.  Children that need no
 * comparison become NULL: the very static of its node, which the Structure holds, or a child
 * absent in both.  1, or 0 without references if any other child is absent. */
static int
hold(FjMatcher *m, const FjNode *node, PyObject *const *borrowed, PyObject **children,
     uint32_t count)
{
    const PyObject *missing = fj_registry_missing(m->registry);
    for (uint32_t i = 0; i < count; i++) {
        PyObject *child = borrowed[i];
        if (node->code == FJ_MISSING ? child == NULL || child == missing
                                     : child == node->aux && node->code == FJ_STATIC &&
                                           (node->flags & FJ_NODE_FIXED)) {
            child = NULL;
        }
        else if (child == NULL) {
            while (i > 0) {
                Py_XDECREF(children[--i]); /* the container holds them */
            }
            return 0;
        }
        children[i] = Py_XNewRef(child);
        node = node->arity == 0 ? node + 1 : fj_structure_skip(m->structure, node);
    }
    return 1;
}

/* (P) Matches children from `hold`.  Moves arrays to the buffer, which leaves NULL. */
static int
match_held_children(FjMatcher *m, PyObject **children, uint32_t count)
{
    const PyTypeObject *array_type = m->registry->array_type;
    int result = 1;
    for (uint32_t i = 0; i < count && result > 0; i++) {
        PyObject *child = children[i];
        if (child == NULL) {
            m->next++;
        }
        else if (m->next->code == FJ_ARRAY && Py_TYPE(child) == array_type) {
            if (fj_leafbuf_reserve(m->arrays, 1) < 0) {
                return -1;
            }
            m->arrays->items[m->arrays->count++] = child;
            children[i] = NULL;
            m->next++;
        }
        else {
            result = match_child(m, child);
        }
    }
    return result;
}

/* ---- containers ---- */

/* For tuples and lists. */
static int
match_sequence(FjMatcher *m, const FjNode *node, PyObject *sequence)
{
    return Py_SIZE(sequence) == (Py_ssize_t)node->arity
               ? match_children(m, PySequence_Fast_ITEMS(sequence), node->arity)
               : 0;
}

static FJ_NOINLINE int
match_dict(FjMatcher *m, const FjNode *node, PyObject *dict)
{
    PyObject **children = fj_scratch_push(&m->scratch, node->arity);
    if (children == NULL) {
        return -1;
    }
    int result = fj_peek_dict(node, dict, children);
    if (FJ_LIKELY(result > 0)) {
        result = match_children(m, children, node->arity);
    }
    fj_scratch_pop(&m->scratch, children);
    return result;
}

/* True if a Module has as many attributes as a node's.  A wrapper (of
 * functools.update_wrapper) has more or fewer than its class declares. */
static inline int
is_alike(const FjNode *node, Py_ssize_t used)
{
    return (used != fj_node_kind_fields(fj_node_kind(node))) ==
           !!(node->flags & FJ_NODE_WRAPPER);
}

static int
match_module(FjMatcher *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    if (FJ_UNLIKELY(fj_fields_view(object, &view) < 0)) {
        return -1;
    }
    if (FJ_UNLIKELY(!is_alike(node, view.used))) {
        return 0;
    }
    if (FJ_LIKELY(view.values != NULL && fj_fields_in_order(kind) &&
                  !(node->flags & FJ_NODE_WRAPPER))) {
        return match_children(m, view.values, node->arity);
    }
    int result = fj_fields_have_str_names(&view) ? 1 : FJ_NEEDS_PYTHON;
    for (uint32_t i = 0; i < node->arity && result > 0; i++) {
        result = match_field(m, fj_fields_peek(&view, kind, i));
    }
    return result;
}

/* Leaves a field that isn't in its storage to getattr, in held mode. */
static int
match_object(FjMatcher *m, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    if (!fj_fields_are_plain(kind) || !fj_fields_view_stored(object, kind, &view)) {
        return FJ_NEEDS_PYTHON;
    }
    int result = 1;
    for (uint32_t i = 0; i < node->arity && result > 0; i++) {
        PyObject *value = fj_fields_peek_object(object, &view, kind, i);
        result = value == NULL ? FJ_NEEDS_PYTHON : match_field(m, value);
    }
    return result;
}

/* Peeks at the children of a locked list, dict, or __dict__ of a Module, and holds them in
 * `children`. */
static int
peek_and_hold(FjMatcher *m, const FjNode *node, PyObject *container, PyObject **children)
{
    PyObject *const *borrowed = children;
    int result = FJ_NEEDS_PYTHON;
    if (node->code == FJ_LIST) {
        borrowed = ((PyListObject *)container)->ob_item;
        result = PyList_GET_SIZE(container) == (Py_ssize_t)node->arity;
    }
    else if (node->code == FJ_DICT) {
        result = fj_peek_dict(node, container, children);
    }
    else if (node->code == FJ_MODULE) {
        result =
            is_alike(node, PyDict_GET_SIZE(container))
                ? fj_peek_names(container, fj_node_kind(node)->names, node->arity, children)
                : 0;
    }
    return result > 0 ? hold(m, node + 1, borrowed, children, node->arity) : result;
}

/* Returns the list or dict whose lock protects the children (new reference).  NULL without an
 * error if there is none, or with MemoryError. */
static PyObject *
container_of(const FjNode *node, PyObject *object)
{
#if FJ_FREE_THREADED
    if (node->code == FJ_MODULE) {
        return fj_fields_dict(object);
    }
#endif
    return node->code == FJ_LIST || node->code == FJ_DICT ? Py_NewRef(object) : NULL;
}

/* (P) True if a container has a node's code, arity, type and value (dict keys, aux data). With
 * `c->keys`, it was read by the node's own keys. */
static int
has_contents(FjMatcher *m, const FjNode *node, const FjContents *c)
{
    PyObject *value = c->code == FJ_CUSTOM ? c->aux_data : c->aux;
    if (c->code != node->code || c->children.count != (Py_ssize_t)node->arity ||
        c->type != fj_structure_info(m->structure, node)->type ||
        ((c->flags ^ node->flags) & FJ_NODE_WRAPPER) ||
        (fj_node_has_kind(node) && c->aux != node->aux)) {
        return 0;
    }
    return fj_structure_value(node) == NULL || c->keys != NULL
               ? 1
               : match_value(m, node, fj_structure_value(node), value);
}

/* (P) Reads a container that can't be peeked at, and compares it without its children. */
static int
read_contents(FjMatcher *m, const FjNode *node, PyObject *object, FjContents *c)
{
    int is_dict = PyDict_Check(object) && fj_structure_value(node) == node->aux;
    if (is_dict && PyDict_GET_SIZE(object) != PyTuple_GET_SIZE(node->aux)) {
        return 0;
    }
    if (is_dict && node->code != FJ_ORDERED_DICT && (node->flags & FJ_NODE_PLAIN_KEYS) &&
        fj_compat_dict_is_unicode(object)) {
        c->keys = node->aux;
    }
    FjNodeKind *kind = fj_node_has_kind(node)
                           ? (FjNodeKind *)Py_NewRef((PyObject *)fj_node_kind(node))
                           : fj_registry_kind(m->registry, object);
    int result = kind == NULL ? -1 : fj_contents_read(c, object, kind);
    Py_XDECREF(kind);
    if (result < 0 && c->failed_to != NULL && is_dict &&
        PyErr_ExceptionMatches(PyExc_Exception) &&
        !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear(); /* flattening raises it later, with the path */
        result = 0;
    }
    return result > 0 ? has_contents(m, node, c) : result;
}

/* (P) Matches the children of a container that can change. */
static int
match_held(FjMatcher *m, const FjNode *node, PyObject *object)
{
    FjContents contents = {.registry = m->registry, .scratch = &m->scratch};
    PyObject **children = fj_scratch_push(&m->scratch, node->arity);
    if (children == NULL) {
        return -1;
    }
    PyObject *container = container_of(node, object);
    int result = FJ_NEEDS_PYTHON;
    if (container != NULL) {
        FJ_LOCKED(container, result = peek_and_hold(m, node, container, children));
        Py_DECREF(container);
    }
    else if (PyErr_Occurred()) {
        result = -1;
    }
    if (result == FJ_NEEDS_PYTHON) {
        result = read_contents(m, node, object, &contents);
        if (result > 0) {
            result = hold(m, node + 1, contents.children.items, children, node->arity);
        }
    }
    if (result > 0) {
        result = match_held_children(m, children, node->arity);
        fj_drop_children(children, node->arity);
    }
    fj_contents_clear(&contents);
    fj_scratch_pop(&m->scratch, children);
    return result;
}

/* (P) match_container in held mode. */
static FJ_NOINLINE int
match_held_container(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (Py_TYPE(object) != fj_structure_type(m->structure, node)) {
        return 0;
    }
    if (node->code == FJ_TUPLE && object == node->aux) {
        m->next = fj_structure_skip(m->structure, node);
        return 1;
    }
    if (node->flags & FJ_NODE_IS_ITS_AUX) { /* compared like a static */
        return match_value(m, node, fj_structure_value(node), object);
    }
    /* A tuple holds its items.  (An instance of an OBJECT kind can subclass tuple.) */
    return node->code == FJ_TUPLE || node->code == FJ_NAMEDTUPLE
               ? match_sequence(m, node, object)
               : match_held(m, node, object);
}

static FJ_NOINLINE void
push_numbered(FjMatcher *m, PyObject *object)
{
    (void)fj_leafbuf_push(m->objects, object); /* has room for all */
}

static FJ_NOINLINE int
match_rare_container(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (Py_TYPE(object) != fj_structure_info(m->structure, node)->type) {
        return 0;
    }
    switch (node->code) {
    case FJ_NAMEDTUPLE:
        return match_sequence(m, node, object);
    case FJ_DICT:
    case FJ_DEFAULT_DICT:
        return match_dict(m, node, object);
    default:
        return node->flags & FJ_NODE_IS_ITS_AUX
                   ? match_value(m, node, fj_structure_value(node), object)
                   : FJ_NEEDS_PYTHON;
    }
}

static int
match_container(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (FJ_UNLIKELY(node->flags & FJ_NODE_NUMBERED)) {
        push_numbered(m, object);
    }
    if (FJ_UNLIKELY(m->holds)) {
        return match_held_container(m, node, object);
    }
    switch (node->code) {
    case FJ_TUPLE:
        if (object == node->aux) { /* can't have changed */
            m->next = fj_structure_skip(m->structure, node);
            return 1;
        }
        return PyTuple_CheckExact(object) ? match_sequence(m, node, object) : 0;
    case FJ_LIST:
        return PyList_CheckExact(object) ? match_sequence(m, node, object) : 0;
    case FJ_MODULE:
        return Py_TYPE(object) == fj_node_kind(node)->type ? match_module(m, node, object) : 0;
    case FJ_OBJECT:
        return Py_TYPE(object) == fj_node_kind(node)->type ? match_object(m, node, object) : 0;
    default:
        return match_rare_container(m, node, object);
    }
}

/* The only stack check: the walk goes no deeper than the Structure. */
static int
match_deep(FjMatcher *m, const FjNode *node, PyObject *object)
{
    if (Py_EnterRecursiveCall(" while matching a pytree")) {
        return -1;
    }
    int result = match_container(m, node, object);
    Py_LeaveRecursiveCall();
    return result;
}

/* Only arguments have a REF.  The object with its number was pushed before. */
static FJ_NOINLINE int
match_ref(FjMatcher *m, const FjNode *node, PyObject *object)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
    return m->objects->items[fj_node_number(node)] == object;
}

int
fj_match_node(FjMatcher *m, PyObject *object)
{
    const FjNode *node = m->next++;
    if (FJ_UNLIKELY(node->code == FJ_NONE)) {
        return object == Py_None;
    }
    switch (node->code) {
    case FJ_ARRAY:
        return match_array(m, node, object);
    case FJ_STATIC:
        return match_value(m, node, node->aux, object);
    case FJ_REF:
        return match_ref(m, node, object);
    default:
        break;
    }
    return FJ_UNLIKELY(node->flags & FJ_NODE_CHECKS_STACK) ? match_deep(m, node, object)
                                                           : match_container(m, node, object);
}
