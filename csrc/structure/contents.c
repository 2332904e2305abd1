/* The contents of static values; contents.h says what they are.
 *
 * Contents are an array of Groups, one for each object that can change, and an array of the
 * references in these objects, one group after the other.
 *
 * Taking contents asks the registry for the kinds of types, which may call `classify` and the
 * `immutable` of a kind, and calls keys.  The references of an object are copied before that
 * runs, and the walk goes on with the copies; so whoever takes contents compares the value
 * after that with what it is to be.  No other function runs Python code, but for finalizers.
 */
#include "structure/contents.h"

#include "base/address_map.h"
#include "base/leafbuf.h"
#include "structure/fields.h"
#include "structure/static_rule.h"
#include "structure/statics.h"

/* Where an object keeps its references. */
typedef enum {
    IN_LIST,
    IN_DICT,
    IN_SLOTS,   /* the attributes of FjNodeKind.contents, in slots side by side */
    IN_FIELDS,  /* the same, anywhere else */
    EMPTY_DICT, /* the object has an empty __dict__ (statics.h) */
} Place;

/* Kept small: a check reads all groups. */
typedef struct {
    PyTypeObject *type; /* owned */
    PyObject *object;   /* owned */
    uint32_t size;      /* the number of references */
    uint32_t kind;      /* IN_SLOTS, IN_FIELDS: its index in `kinds` */
    uint32_t offset;    /* IN_SLOTS: where the first slot is in the object */
    uint8_t place;      /* a Place */
} Group;

/* How many groups ahead of it a check fetches an object into the processor's cache. */
#define AHEAD 8

struct FjContents {
    FjRegistry *registry; /* owned */
    Group *groups;
    Py_ssize_t num_groups, capacity;
    FjLeafBuf held;
    FjLeafBuf kinds;   /* kinds with the fields of classes ... */
    uint64_t versions; /* ... and the sum of their classes' versions, which only grow */
    PyObject *room[2], *kinds_room[2];
};

/* ---- whether contents are the same ---- */

/* It stops at the first difference, so that the compiler makes no vectors of the few slots
 * that most objects have. */
static inline int
has_same_slots(PyObject *const *slots, PyObject *const *expected, Py_ssize_t size)
{
    for (Py_ssize_t i = 0; i < size; i++) {
        if (slots[i] != expected[i]) {
            return 0;
        }
    }
    return 1;
}

static inline int
has_same_fields(PyObject *object, FjNodeKind *kind, PyObject *const *expected)
{
    FjFieldView view;
    Py_ssize_t count = fj_node_kind_fields(kind);
    if (!fj_fields_view_stored(object, kind, &view)) {
        return 0;
    }
    if (view.values != NULL && fj_fields_in_order(kind) && kind->in_dict == count) {
        return has_same_slots(view.values, expected, count);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (fj_fields_peek_object(object, &view, kind, i) != expected[i]) {
            return 0;
        }
    }
    return 1;
}

static inline int
has_same_items(PyObject *list, PyObject *const *expected, Py_ssize_t size)
{
    return PyList_GET_SIZE(list) == size &&
           (size == 0 || memcmp(((PyListObject *)list)->ob_item, expected,
                                (size_t)size * sizeof(PyObject *)) == 0);
}

static int
has_same_pairs(PyObject *dict, PyObject *const *expected, Py_ssize_t size)
{
    PyObject *key, *value;
    Py_ssize_t position = 0, i = 0;
    if (PyDict_GET_SIZE(dict) * 2 != size) {
        return 0;
    }
    while (i < size && fj_compat_dict_next(dict, &position, &key, &value) &&
           key == expected[i] && value == expected[i + 1]) {
        i += 2;
    }
    return i == size;
}

/* Whether the object of a group still holds the references that were taken. */
static inline int
has_same_references(const FjContents *self, const Group *group, PyObject *const *expected)
{
    PyObject *object = group->object;
    if (FJ_LIKELY(group->place == IN_SLOTS)) {
        return has_same_slots((PyObject *const *)((char *)object + group->offset), expected,
                              group->size);
    }
    switch (group->place) {
    case IN_FIELDS:
        return has_same_fields(object, (FjNodeKind *)self->kinds.items[group->kind], expected);
    case IN_LIST:
        return has_same_items(object, expected, group->size);
    case IN_DICT:
        return has_same_pairs(object, expected, group->size);
    default:
        return fj_static_has_empty_dict(self->registry, object);
    }
}

/* Whether the classes with fields are as they were, so that getattr still reads these. */
static inline int
has_same_classes(const FjContents *self)
{
    uint64_t versions = 0;
    for (Py_ssize_t i = 0; i < self->kinds.count; i++) {
        FjNodeKind *kind = (FjNodeKind *)self->kinds.items[i];
        if (!fj_fields_are_plain(kind)) {
            return 0;
        }
        versions += kind->plain_version;
    }
    return versions == self->versions;
}

int
fj_contents_are_same(const FjContents *self)
{
    PyObject *const *expected = self->held.items;
    const Group *end = self->groups + self->num_groups;
    if (!has_same_classes(self)) {
        return 0;
    }
    for (const Group *group = self->groups; group < end; group++) {
        FJ_PREFETCH(group + AHEAD < end ? group[AHEAD].object : NULL);
        if (FJ_UNLIKELY(Py_TYPE(group->object) != group->type ||
                        !has_same_references(self, group, expected))) {
            return 0;
        }
        expected += group->size;
    }
    return 1;
}

/* ---- taking contents ---- */

typedef struct {
    FjContents *contents;
    FjAddressMap seen;    /* the containers that have been taken */
    FjLeafBuf containers; /* a reference to each of them */
} Take;

static int take(Take *t, PyObject *value);

/* Starts the group of an object, and reserves room for its references, which are pushed after
 * it.  1, 0 if it is too large, or -1 with an error. */
static int
add_group(FjContents *self, PyObject *object, Place place, Py_ssize_t size)
{
    if (size > UINT32_MAX) {
        return 0;
    }
    if (self->num_groups == self->capacity) {
        Py_ssize_t capacity = self->capacity == 0 ? 8 : self->capacity * 2;
        Group *groups = PyMem_Realloc(self->groups, (size_t)capacity * sizeof(Group));
        if (groups == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->groups = groups;
        self->capacity = capacity;
    }
    if (fj_leafbuf_reserve(&self->held, size) < 0) {
        return -1;
    }
    self->groups[self->num_groups++] =
        (Group){.type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object)),
                .object = Py_NewRef(object),
                .size = (uint32_t)size,
                .place = (uint8_t)place};
    return 1;
}

/* Takes `count` objects of which there are references in `held`, from `first` on.  1, 0 if one
 * of them has no contents, or -1 with an error. */
static int
take_held(Take *t, Py_ssize_t first, Py_ssize_t count)
{
    int result = 1;
    for (Py_ssize_t i = first; i < first + count && result > 0; i++) {
        result = take(t, t->contents->held.items[i]); /* the array moves when it grows */
    }
    return result;
}

static int
take_tuple(Take *t, PyObject *tuple)
{
    int result = 1;
    if (Py_TYPE(tuple) == t->contents->registry->state->snapshot) {
        return fj_static_is_identity(t->contents->registry, tuple);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple) && result > 0; i++) {
        result = take(t, PyTuple_GET_ITEM(tuple, i));
    }
    return result;
}

static int
take_frozenset(Take *t, PyObject *set)
{
    if (!PyFrozenSet_CheckExact(set)) {
        return 0;
    }
    PyObject *items = fj_tuple_of(set);
    int result = items == NULL ? -1 : take_tuple(t, items);
    Py_XDECREF(items);
    return result;
}

static int
take_list(Take *t, PyObject *list)
{
    FjContents *self = t->contents;
    Py_ssize_t size = PyList_GET_SIZE(list);
    int result = add_group(self, list, IN_LIST, size);
    if (result <= 0) {
        return result;
    }
    Py_ssize_t first = self->held.count;
    return fj_leafbuf_extend(&self->held, ((PyListObject *)list)->ob_item, size) < 0
               ? -1
               : take_held(t, first, size);
}

static int
take_dict(Take *t, PyObject *dict)
{
    FjContents *self = t->contents;
    PyObject *key, *value;
    Py_ssize_t size = PyDict_GET_SIZE(dict) * 2, position = 0;
    int result = add_group(self, dict, IN_DICT, size);
    if (result <= 0) {
        return result;
    }
    Py_ssize_t first = self->held.count;
    while (fj_compat_dict_next(dict, &position, &key, &value)) {
        fj_leafbuf_push_reserved(&self->held, key);
        fj_leafbuf_push_reserved(&self->held, value);
    }
    return take_held(t, first, size);
}

/* Keeps a reference to a kind: its index in `kinds`, or -1 with an error. */
static Py_ssize_t
hold_kind(FjContents *self, FjNodeKind *kind)
{
    for (Py_ssize_t i = 0; i < self->kinds.count; i++) {
        if (self->kinds.items[i] == (PyObject *)kind) {
            return i;
        }
    }
    self->versions += kind->plain_version;
    return fj_leafbuf_push(&self->kinds, (PyObject *)kind) < 0 ? -1 : self->kinds.count - 1;
}

/* Whether all fields are in slots, one after the other. */
static int
are_side_by_side(const FjNodeKind *kind)
{
    Py_ssize_t count = fj_node_kind_fields(kind);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (kind->offsets[i] == 0 ||
            kind->offsets[i] != kind->offsets[0] + i * (Py_ssize_t)sizeof(PyObject *)) {
            return 0;
        }
    }
    return count > 0;
}

static int
take_fields(Take *t, PyObject *object, FjNodeKind *kind)
{
    FjContents *self = t->contents;
    FjFieldView view;
    Py_ssize_t size = fj_node_kind_fields(kind);
    if (Py_TYPE(object) != kind->type || !fj_fields_are_plain(kind) ||
        kind->plain_version == 0 || !fj_fields_view_stored(object, kind, &view)) {
        return 0;
    }
    Place place = are_side_by_side(kind) ? IN_SLOTS : IN_FIELDS;
    Py_ssize_t index = hold_kind(self, kind);
    int result = index < 0 ? -1 : add_group(self, object, place, size);
    if (result <= 0) {
        return result;
    }
    Group *group = &self->groups[self->num_groups - 1];
    group->kind = (uint32_t)index;
    group->offset = place == IN_SLOTS ? (uint32_t)kind->offsets[0] : 0;
    Py_ssize_t first = self->held.count;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *value = fj_fields_peek_object(object, &view, kind, i);
        if (value == NULL) {
            return 0;
        }
        fj_leafbuf_push_reserved(&self->held, value);
    }
    return take_held(t, first, size);
}

/* Takes the contents of the key of a value that cannot change itself; steals the key, where
 * NULL is an error that is passed on. */
static int
take_key(Take *t, PyObject *key)
{
    int result = key == NULL ? -1 : take(t, key);
    Py_XDECREF(key);
    return result;
}

static int
take_by_type(Take *t, PyObject *value)
{
    FjContents *self = t->contents;
    FjRegistry *registry = self->registry;
    if (fj_static_registered_key(registry, Py_TYPE(value)) != NULL) {
        return 0;
    }
    int immutable = fj_static_is_immutable(registry, value);
    if (immutable != 0) {
        return immutable;
    }
    if (fj_static_has_empty_dict(registry, value)) {
        return add_group(self, value, EMPTY_DICT, 0) < 0 ? -1 : take_tuple(t, value);
    }
    FjNodeKind *kind = fj_static_kind(registry, Py_TYPE(value));
    if (kind == NULL || (kind->contents == NULL && !kind->key_is_contents)) {
        return 0;
    }
    Py_INCREF(kind);
    int result = kind->contents != NULL ? take_fields(t, value, kind->contents)
                                        : take_key(t, fj_static_key(kind, value));
    Py_DECREF(kind);
    return result;
}

/* Takes the contents of a container that has not been taken yet. */
static int
take_container(Take *t, PyObject *value, FjStaticRule rule)
{
    switch (rule) {
    case FJ_TUPLE_ITEMS:
        return take_tuple(t, value);
    case FJ_SET_ITEMS:
        return take_frozenset(t, value);
    case FJ_LIST_ITEMS:
        return take_list(t, value);
    case FJ_DICT_ITEMS:
        return take_dict(t, value);
    default:
        return take_by_type(t, value);
    }
}

/* 1, 0 if the value has no contents, or -1 with an error.  The caller holds the value. */
static int
take(Take *t, PyObject *value)
{
    FjStaticRule rule = fj_static_rule(t->contents->registry, Py_TYPE(value));
    if (fj_static_rule_is_inert(rule)) {
        return 1;
    }
    if (fj_address_map_find(&t->seen, value) >= 0) {
        return 1;
    }
    if (fj_address_map_add(&t->seen, value, 0) < 0 ||
        fj_leafbuf_push(&t->containers, value) < 0) {
        return -1;
    }
    if (Py_EnterRecursiveCall(" while looking at a static value")) {
        PyErr_Clear();
        return 0;
    }
    int result = take_container(t, value, rule);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_contents_take(FjRegistry *registry, PyObject *value, FjContents **contents)
{
    *contents = NULL;
    FjContents *self = PyMem_Calloc(1, sizeof(FjContents));
    if (self == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->registry = (FjRegistry *)Py_NewRef((PyObject *)registry);
    fj_leafbuf_init(&self->held, self->room, 2);
    fj_leafbuf_init(&self->kinds, self->kinds_room, 2);
    PyObject *room[FJ_LEAFBUF_FEW];
    Take t = {.contents = self};
    fj_leafbuf_init(&t.containers, room, FJ_LEAFBUF_FEW);
    int result = take(&t, value);
    PyObject *exception = fj_compat_take_exception(); /* none is set while objects are freed */
    fj_address_map_clear(&t.seen);
    fj_leafbuf_clear(&t.containers);
    if (result > 0) {
        *contents = self;
        return 0;
    }
    fj_contents_free(self);
    fj_compat_give_exception(exception);
    return result;
}

void
fj_contents_free(FjContents *self)
{
    if (self != NULL) {
        for (Py_ssize_t i = 0; i < self->num_groups; i++) {
            Py_DECREF(self->groups[i].type);
            Py_DECREF(self->groups[i].object);
        }
        fj_leafbuf_clear(&self->held);
        fj_leafbuf_clear(&self->kinds);
        PyMem_Free(self->groups);
        Py_DECREF(self->registry);
        PyMem_Free(self);
    }
}

int
fj_contents_traverse(const FjContents *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; self != NULL && i < self->num_groups; i++) {
        Py_VISIT(self->groups[i].type);
        Py_VISIT(self->groups[i].object);
    }
    for (Py_ssize_t i = 0; self != NULL && i < self->held.count; i++) {
        Py_VISIT(self->held.items[i]);
    }
    for (Py_ssize_t i = 0; self != NULL && i < self->kinds.count; i++) {
        Py_VISIT(self->kinds.items[i]);
    }
    if (self != NULL) {
        Py_VISIT(self->registry);
    }
    return 0;
}
