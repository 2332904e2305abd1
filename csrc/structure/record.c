/* Makes and checks flat records (record.h).  Runs no Python code. */
#include "structure/record.h"

#include "structure/fields.h"
#include "structure/statics.h"

#define AHEAD 8     /* containers to prefetch in a check */
#define DICT_ITEM 3 /* most words per item in the block of a dict */

/* For a container without references. */
static PyObject *const nothing[1] = {NULL};

void *
fj_vector_append(FjVector *vector, Py_ssize_t count, size_t size)
{
    if (vector->items == NULL || vector->capacity - vector->count < count) {
        Py_ssize_t capacity = Py_MAX(2 * vector->capacity, vector->count + count + 1);
        void *items = PyMem_Realloc(vector->items, (size_t)capacity * size);
        if (items == NULL) {
            return NULL;
        }
        vector->items = items;
        vector->capacity = capacity;
    }
    vector->count += count;
    return (char *)vector->items + (size_t)(vector->count - count) * size;
}

int
fj_vector_append_addresses(FjVector *vector, PyObject *const *addresses, Py_ssize_t count)
{
    PyObject **place = fj_vector_append(vector, count, sizeof(PyObject *));
    if (place != NULL && count > 0) { /* `addresses` can be NULL otherwise */
        memcpy(place, addresses, (size_t)count * sizeof(PyObject *));
    }
    return place != NULL;
}

void
fj_vector_clear(FjVector *vector)
{
    PyMem_Free(vector->items);
    *vector = (FjVector){.items = NULL};
}

/* ---- recording ---- */

void
fj_record_clear(FjRecord *record)
{
    fj_vector_clear(&record->containers);
    fj_vector_clear(&record->items);
    record->failed = 0;
}

/* Returns the block of a container and its size.  NULL without a block: an instance can store
 * its attributes in a dict, and a dict can share its keys. */
static inline PyObject *const *
block_of(PyObject *object, FjPlace place, Py_ssize_t *size)
{
    switch (place) {
    case FJ_IN_LIST:
        *size = PyList_GET_SIZE(object);
        return *size == 0 ? nothing : ((PyListObject *)object)->ob_item;
    case FJ_IN_TUPLE:
        *size = PyTuple_GET_SIZE(object);
        return ((PyTupleObject *)object)->ob_item;
    case FJ_IN_VALUES:
        return fj_fields_values(object, size);
    default:
        return fj_compat_dict_entries(object, place == FJ_IN_STR_DICT, size);
    }
}

/* Adds a container.  Its references are the last `size` items.  NULL without memory. */
static FjRecorded *
add_container(FjRecord *record, PyObject *object, FjPlace place, Py_ssize_t size)
{
    FjRecorded *added = fj_vector_append(&record->containers, 1, sizeof(FjRecorded));
    if (added == NULL) {
        record->failed = 1;
        return NULL;
    }
    *added =
        (FjRecorded){.object = object, .type = Py_TYPE(object), .size = size, .place = place};
    return added;
}

FjRecorded *
fj_record_add(FjRecord *record, PyObject *object, FjPlace place, PyObject *const *items,
              Py_ssize_t size)
{
    if (items == NULL || !fj_vector_append_addresses(&record->items, items, size)) {
        record->failed = 1;
        return NULL;
    }
    return add_container(record, object, place, size);
}

void
fj_record_add_items(FjRecord *record, PyObject *object, FjPlace place)
{
    Py_ssize_t size = 0;
    PyObject *const *items = block_of(object, place, &size);
    fj_record_add(record, object, place, items, size);
}

void
fj_record_add_dict(FjRecord *record, PyObject *dict)
{
    Py_ssize_t size = 0;
    FjPlace place = FJ_IN_STR_DICT;
    PyObject *const *entries = block_of(dict, place, &size);
    if (entries == NULL) {
        entries = block_of(dict, place = FJ_IN_DICT, &size);
    }
    if (size > DICT_ITEM * PyDict_GET_SIZE(dict)) { /* items were deleted */
        entries = NULL;
    }
    fj_record_add(record, dict, place, entries, size);
}

static FjPlace
place_of_fields(const FjFieldView *view, const FjNodeKind *kind)
{
    return kind->in_dict == 0 ? FJ_IN_SLOTS
           : view->values != NULL && view->used == fj_node_kind_fields(kind) &&
                   fj_fields_in_order(kind) && fj_fields_are_in_dict(kind)
               ? FJ_IN_VALUES
               : FJ_IN_FIELDS;
}

FjRecorded *
fj_record_add_fields(FjRecord *record, PyObject *object, FjNodeKind *kind)
{
    FjFieldView view;
    Py_ssize_t count = fj_node_kind_fields(kind);
    PyObject **fields = NULL;
    if (fj_fields_are_plain(kind) && fj_fields_view_stored(object, kind, &view)) {
        fields = fj_vector_append(&record->items, count, sizeof(PyObject *));
    }
    if (fields == NULL) {
        record->failed = 1;
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        fields[i] = fj_fields_peek_object(object, &view, kind, i);
        record->failed |= fields[i] == NULL; /* getattr would look further */
    }
    FjRecorded *added = add_container(record, object, place_of_fields(&view, kind), count);
    if (added != NULL) {
        added->kind = kind;
    }
    return added;
}

void
fj_record_add_static(FjRecord *record, PyObject *value, void *snapshot, FjSameStatic is_same)
{
    PyObject *reference = snapshot;
    FjRecorded *added = fj_record_add(record, value, FJ_IN_SNAPSHOT, &reference, 1);
    if (added != NULL) {
        added->is_same = is_same;
    }
}

/* ---- checking ---- */

/* Returns the bits in which an object's slots differ from the copy. */
static inline uintptr_t
difference_of_slots(const FjRecorded *container, PyObject *const *expected, PyObject **arrays)
{
    const Py_ssize_t *offsets = container->kind->offsets;
    const char *object = (const char *)container->object;
    uintptr_t difference = 0;
    Py_ssize_t k = 0;
    if (container->array > 0) {
        PyObject *array = *(PyObject **)(object + offsets[k++]);
        arrays[container->array - 1] = array;
        difference = array == NULL;
    }
    for (; k < container->size; k++) {
        difference |= (uintptr_t)*(PyObject **)(object + offsets[k]) ^ (uintptr_t)expected[k];
    }
    return difference;
}

static int
has_fields(PyObject *object, FjNodeKind *kind, PyObject *const *expected)
{
    FjFieldView view;
    int same = fj_fields_view_stored(object, kind, &view);
    for (Py_ssize_t i = 0; i < fj_node_kind_fields(kind) && same; i++) {
        same = fj_fields_peek_object(object, &view, kind, i) == expected[i];
    }
    return same;
}

/* For containers in neither a block nor slots. */
static FJ_NOINLINE int
is_same_elsewhere(const FjRecorded *container, PyObject *const *expected)
{
    FjFieldView view;
    switch (container->place) {
    case FJ_IN_FIELDS:
        return has_fields(container->object, container->kind, expected);
    case FJ_IN_ITS_DICT:
        return fj_fields_view(container->object, &view) == 0 && view.values == NULL &&
               view.dict == expected[0];
    case FJ_IN_EMPTY_DICT:
        return fj_static_has_no_attributes(container->object);
    default:
        return container->is_same(container, expected);
    }
}

static inline int
is_same(const FjRecorded *container, PyObject *const *expected, PyObject **arrays)
{
    uintptr_t difference = 0;
    Py_ssize_t size;
    if (container->place == FJ_IN_SLOTS) {
        return difference_of_slots(container, expected, arrays) == 0;
    }
    if (container->place > FJ_IN_SLOTS) {
        return is_same_elsewhere(container, expected);
    }
    PyObject *const *items = block_of(container->object, container->place, &size);
    if (items == NULL || size != container->size) {
        return 0;
    }
    for (Py_ssize_t k = 0; k < size; k++) {
        difference |= (uintptr_t)items[k] ^ (uintptr_t)expected[k];
    }
    return difference == 0;
}

/* True if getattr reads the object's attributes only from where they were recorded. */
static inline int
is_stored_there(FjNodeKind *kind, FjPlace place)
{
    return fj_fields_are_plain(kind) && (place == FJ_IN_FIELDS  ? 1
                                         : place == FJ_IN_SLOTS ? kind->in_dict == 0
                                                                : fj_fields_are_in_dict(kind));
}

int
fj_record_is_same(const FjRecord *record, PyObject **arrays)
{
    PyObject *const *expected = record->items.items;
    const FjRecorded *containers = record->containers.items;
    const FjRecorded *end = containers + record->containers.count;
    for (const FjRecorded *container = containers; container < end; container++) {
        FJ_PREFETCH(container + AHEAD < end ? container[AHEAD].object : NULL);
        if (Py_TYPE(container->object) != container->type ||
            (container->kind != NULL && !is_stored_there(container->kind, container->place)) ||
            !is_same(container, expected, arrays)) {
            return 0;
        }
        expected += container->size;
    }
    return 1;
}
