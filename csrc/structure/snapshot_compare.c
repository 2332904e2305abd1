/* Compares snapshots with each other, and with current values (snapshot.h).
 *
 * Python code can run when two snapshots are compared (the __eq__ of values), and in
 * fj_static_equal_now and fj_snapshot_has, which take snapshots.  The caller holds the
 * snapshots.  fj_snapshot_match runs none, so nothing changes while it looks.  fj_snapshot_has
 * first looks at the whole value in the same way, and holds the objects that need Python code.
 * Without a GIL, both leave everything to a new snapshot. */
#include "base/address_map.h"
#include "base/leafbuf.h"
#include "structure/fields.h"
#include "structure/snapshot.h"
#include "structure/statics.h"

/* ---- two snapshots ---- */

static int equal_parts(const FjSnapshot *a, uint32_t i, const FjSnapshot *b, uint32_t k);

typedef struct {
    Py_hash_t hash;
    uint32_t index;
    int paired;
} Item;

static int
compare_hashes(const void *a, const void *b)
{
    Py_hash_t x = ((const Item *)a)->hash, y = ((const Item *)b)->hash;
    return (x > y) - (x < y);
}

/* Returns the children of a part sorted by hash, for PyMem_Free. */
static Item *
by_hash(const FjSnapshot *snapshot, uint32_t index)
{
    const FjSnapshotPart *parts = snapshot->parts;
    Item *items = PyMem_New(Item, (size_t)parts[index].children + 1);
    uint32_t count = 0;
    if (items == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t i = index + 1; i < parts[index].end; i = parts[i].end) {
        items[count++] = (Item){parts[i].hash, i, 0};
    }
    qsort(items, count, sizeof(Item), compare_hashes);
    return items;
}

/* Pairs each of the items in `x` with an equal one in `y`.  1, 0, or -1 with an error. */
static int
pair_items(const FjSnapshot *a, const Item *x, const FjSnapshot *b, Item *y, uint32_t count)
{
    uint32_t start = 0; /* of the items in `y` with the hash of x[i] */
    for (uint32_t i = 0; i < count; i++) {
        int same = 0;
        start = i > 0 && x[i].hash == x[i - 1].hash ? start : i;
        for (uint32_t k = start; k < count && y[k].hash == x[i].hash && same == 0; k++) {
            if (!y[k].paired) {
                same = equal_parts(a, x[i].index, b, y[k].index);
                y[k].paired = same > 0;
            }
        }
        if (same <= 0) {
            return same;
        }
    }
    return 1;
}

static int
equal_sets(const FjSnapshot *a, uint32_t i, const FjSnapshot *b, uint32_t k)
{
    Item *x = by_hash(a, i);
    Item *y = x == NULL ? NULL : by_hash(b, k);
    int same = y == NULL ? -1 : pair_items(a, x, b, y, a->parts[i].children);
    PyMem_Free(x);
    PyMem_Free(y);
    return same;
}

static int
equal_children(const FjSnapshot *a, uint32_t i, const FjSnapshot *b, uint32_t k)
{
    uint32_t end = a->parts[i].end;
    int same = 1;
    for (i++, k++; i < end && same > 0; i = a->parts[i].end, k = b->parts[k].end) {
        same = equal_parts(a, i, b, k);
    }
    return same;
}

/* Compares two parts with their subtrees.  1, 0, or -1 with an error. */
static int
equal_parts(const FjSnapshot *a, uint32_t i, const FjSnapshot *b, uint32_t k)
{
    const FjSnapshotPart *x = &a->parts[i], *y = &b->parts[k];
    if (x->code != y->code || x->hash != y->hash || x->type != y->type) {
        return 0;
    }
    switch (x->code) {
    case FJ_PART_INERT:
        return fj_static_equal(a->registry, x->object, y->object);
    case FJ_PART_OWN_EQ:
        /* If one object is in both and has changed in between, the hashes differ. */
        return PyObject_RichCompareBool(x->object, y->object, Py_EQ);
    case FJ_PART_IDENTITY:
        return x->object == y->object;
    case FJ_PART_ANCESTOR:
        return 1;
    default:
        break;
    }
    if (x->children != y->children) {
        return 0;
    }
    if (Py_EnterRecursiveCall(" while comparing static values")) {
        return -1;
    }
    int same = x->code == FJ_PART_SET ? equal_sets(a, i, b, k) : equal_children(a, i, b, k);
    Py_LeaveRecursiveCall();
    return same;
}

int
fj_snapshot_equal(const FjSnapshot *a, const FjSnapshot *b)
{
    return equal_parts(a, 0, b, 0);
}

/* ---- a snapshot and a value ---- */

typedef struct {
    const FjSnapshot *snapshot;
    /* Values left to Python code (owned), and the index of each value's part, with room for
     * all parts.  NULL if no Python code can run. */
    FjLeafBuf *for_python;
    uint32_t *indices;
    /* Records the mutable objects of the value; or NULL. */
    FjRecord *record;
    FjAddressMap *seen; /* objects in the record */
} Comparison;

static int match_part(const Comparison *c, const FjSnapshotPart *part, PyObject *value);

/* True if Python code once found `value` equal, and it hasn't changed since. */
static int
is_known(const FjSnapshotPart *part, PyObject *value)
{
    return part->equal != NULL && value == part->equal->parts->object &&
           fj_snapshot_match(part->equal, value) == 1;
}

/* Leaves a value to Python code unless it is known.  FJ_NEEDS_PYTHON if none can run.
 */
static int
leave_to_python(const Comparison *c, const FjSnapshotPart *part, PyObject *value)
{
    if (is_known(part, value)) {
        if (c->record != NULL) {
            c->record->failed = 1;
        }
        return 1;
    }
    if (c->for_python == NULL || fj_leafbuf_push(c->for_python, value) < 0) {
        return FJ_NEEDS_PYTHON;
    }
    c->indices[c->for_python->count - 1] = (uint32_t)(part - c->snapshot->parts);
    return 1;
}

/* True if a record is made and lacks the object. */
static inline int
is_new(const Comparison *c, PyObject *object)
{
    if (FJ_LIKELY(c->record == NULL) || fj_address_map_find(c->seen, object) >= 0) {
        return 0;
    }
    if (fj_address_map_add(c->seen, object, 0) < 0) {
        PyErr_Clear(); /* the record then repeats it */
    }
    return 1;
}

/* Matches a child.  Returns the next child, or NULL and sets `*result`. */
static inline const FjSnapshotPart *
match_child(const Comparison *c, const FjSnapshotPart *part, PyObject *value, int *result)
{
    if (FJ_LIKELY(value == part->object && (part->flags & FJ_PART_FIXED))) {
        return c->snapshot->parts + part->end;
    }
    *result = match_part(c, part, value);
    return FJ_LIKELY(*result == 1) ? c->snapshot->parts + part->end : NULL;
}

static int
match_items(const Comparison *c, const FjSnapshotPart *part, PyObject *const *items)
{
    int result = 1;
    const FjSnapshotPart *child = part + 1, *end = c->snapshot->parts + part->end;
    for (; child != NULL && child < end; items++) {
        child = match_child(c, child, *items, &result);
    }
    return result;
}

/* Returns the items of a tuple or list with this size, or NULL. */
static inline PyObject *const *
items_of(uint32_t count, PyObject *value)
{
    static PyObject *const none[1] = {NULL};
    if (Py_SIZE(value) != (Py_ssize_t)count) {
        return NULL;
    }
    return count == 0             ? none
           : PyTuple_Check(value) ? ((PyTupleObject *)value)->ob_item
                                  : ((PyListObject *)value)->ob_item;
}

static int
match_dict(const Comparison *c, const FjSnapshotPart *part, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    int result = 1;
    const FjSnapshotPart *child = part + 1, *end = c->snapshot->parts + part->end;
    if (dict == NULL || PyDict_GET_SIZE(dict) * 2 != (Py_ssize_t)part->children) {
        return 0;
    }
    if (is_new(c, dict)) {
        fj_record_add_dict(c->record, dict);
    }
    while (child != NULL && child < end &&
           fj_compat_dict_next(dict, &position, &key, &value)) {
        child = match_child(c, child, key, &result);
        child = child == NULL ? NULL : match_child(c, child, value, &result);
    }
    return result;
}

static int
match_fields(const Comparison *c, const FjSnapshotPart *part, PyObject *object)
{
    PyObject *stack[FJ_FIELDS_INLINE];
    PyObject *const *fields = fj_fields_stored(part->kind, object, stack);
    if (fields == NULL) {
        return leave_to_python(c, part, object);
    }
    if (is_new(c, object)) {
        fj_record_add_fields(c->record, object, part->kind);
    }
    return match_items(c, part, fields);
}

static int
are_equal_inert(FjRegistry *registry, PyObject *a, PyObject *b)
{
    return a == b || (fj_static_is_inert(registry, a) && fj_static_is_inert(registry, b) &&
                      fj_static_equal(registry, a, b) > 0);
}

/* True if two dicts have the same inert items in the same order. */
static int
have_equal_items(FjRegistry *registry, PyObject *a, PyObject *b)
{
    PyObject *key, *value, *other_key, *other;
    Py_ssize_t at = 0, other_at = 0;
    while (fj_compat_dict_next(a, &at, &key, &value)) {
        if (!fj_compat_dict_next(b, &other_at, &other_key, &other) ||
            !are_equal_inert(registry, key, other_key) ||
            !are_equal_inert(registry, value, other)) {
            return 0;
        }
    }
    return PyDict_GET_SIZE(a) == PyDict_GET_SIZE(b);
}

/* True if inert fields show that `value` equals a fixed part's object.  Python code then
 * doesn't need to compare the keys. */
static int
has_equal_fields(const FjSnapshot *self, const FjSnapshotPart *part, PyObject *value)
{
    PyObject *stack[2][FJ_FIELDS_INLINE];
    FjRegistry *registry = self->registry;
    if (part->kind == NULL || part->object == NULL) {
        return 0;
    }
    uint32_t count = (uint32_t)fj_node_kind_fields(part->kind);
    PyObject *const *a = fj_fields_stored(part->kind, part->object, stack[0]);
    PyObject *const *b = a == NULL ? NULL : fj_fields_stored(part->kind, value, stack[1]);
    for (uint32_t i = 0; b != NULL && i < count; i++) {
        if (!(PyDict_CheckExact(a[i]) && PyDict_CheckExact(b[i])
                  ? have_equal_items(registry, a[i], b[i])
                  : are_equal_inert(registry, a[i], b[i]))) {
            return 0;
        }
    }
    return b != NULL;
}

/* Matches an ITSELF value by its contents, the children.  Leaves others to Python code. */
static int
match_itself(const Comparison *c, const FjSnapshotPart *part, PyObject *value)
{
    int result = 1;
    const FjSnapshotPart *end = c->snapshot->parts + part->end;
    if ((part->flags & FJ_PART_FIXED) && has_equal_fields(c->snapshot, part, value)) {
        return 1;
    }
    int has_empty_dict = part->flags & FJ_PART_EMPTY_DICT;
    if (!(part->flags & FJ_PART_ITSELF) || value != part->object ||
        (has_empty_dict && !fj_static_has_no_attributes(value))) {
        return leave_to_python(c, part, value);
    }
    if (has_empty_dict && is_new(c, value)) {
        fj_record_add(c->record, value, FJ_IN_EMPTY_DICT, &value, 0);
    }
    for (const FjSnapshotPart *child = part + 1; child != NULL && child < end;) {
        child = match_child(c, child, child->object, &result);
    }
    return result;
}

static int
match_container(const Comparison *c, const FjSnapshotPart *part, PyObject *value)
{
    PyObject *const *items;
    int same;
    switch (part->code) {
    case FJ_PART_SEQUENCE:
        items = items_of(part->children, value);
        if (PyList_Check(value) && is_new(c, value)) {
            fj_record_add_items(c->record, value, FJ_IN_LIST);
        }
        return items == NULL ? 0 : match_items(c, part, items);
    case FJ_PART_DICT:
        return match_dict(c, part, fj_snapshot_dict(value));
    case FJ_PART_FIELDS:
        return match_fields(c, part, value);
    case FJ_PART_OWN_EQ:
        same = part->kind != NULL && value == part->object ? match_fields(c, part, value) : 0;
        return same == 0 ? leave_to_python(c, part, value) : same;
    default:
        return match_itself(c, part, value);
    }
}

static int
match_inert(const Comparison *c, const FjSnapshotPart *part, PyObject *value)
{
    /* A class can gain an __eq__ after the snapshot was taken. */
    return Py_TYPE(value) == Py_TYPE(part->object) &&
           fj_static_is_inert(c->snapshot->registry, value) &&
           fj_static_equal(c->snapshot->registry, part->object, value) > 0;
}

/* The only stack check: a comparison goes no deeper than the snapshot. */
static int
match_deep(const Comparison *c, const FjSnapshotPart *part, PyObject *value)
{
    if (Py_EnterRecursiveCall(" while comparing static values")) {
        PyErr_Clear(); /* taking a snapshot raises it later */
        return leave_to_python(c, part, value);
    }
    int result = match_container(c, part, value);
    Py_LeaveRecursiveCall();
    return result;
}

/* Matches a value that isn't the object of a fixed part.  Only the objects of the parts,
 * which the snapshot holds, can be recorded. */
static int
match_part(const Comparison *c, const FjSnapshotPart *part, PyObject *value)
{
    if (c->record != NULL && value != part->object) {
        c->record->failed = 1;
    }
    if (part->code == FJ_PART_ANCESTOR) {
        return c->record != NULL && !c->record->failed ? 1 : FJ_NEEDS_PYTHON;
    }
    if (part->type == NULL) {
        return match_inert(c, part, value);
    }
    if (Py_TYPE(value) != part->type) {
        return 0;
    }
    return FJ_UNLIKELY(part->flags & FJ_PART_CHECKS_STACK) ? match_deep(c, part, value)
                                                           : match_container(c, part, value);
}

/* Matches the value that the snapshot was taken of.  Records it if it is the same. */
static int
match_and_record(FjSnapshot *self)
{
    FjAddressMap seen = {.entries = NULL};
    const Comparison c = {.snapshot = self, .record = &self->record, .seen = &seen};
    fj_record_clear(&self->record);
    int same = match_part(&c, self->parts, self->parts->object);
    self->recorded = same == 1;
    fj_address_map_clear(&seen);
    return same;
}

int
fj_snapshot_match(FjSnapshot *self, PyObject *value)
{
    const Comparison c = {.snapshot = self};
    if (FJ_FREE_THREADED || self->may_run_python) {
        return FJ_NEEDS_PYTHON;
    }
    if (value == self->parts->object) {
        if (!self->recorded) {
            return match_and_record(self);
        }
        if (!self->record.failed && fj_record_is_same(&self->record, NULL)) {
            return 1;
        }
    }
    return self->cyclic ? FJ_NEEDS_PYTHON : match_part(&c, self->parts, value);
}

int
fj_snapshot_is_same(const FjRecorded *recorded, PyObject *const *snapshot)
{
    return fj_snapshot_match((FjSnapshot *)snapshot[0], recorded->object) > 0;
}

/* (P) True if `value` is the object of an OWN_EQ part and has the same hash, so it equals
 * itself.  1, 0, or -1 with an error. */
static int
is_unchanged(const FjSnapshotPart *part, PyObject *value)
{
    if (part->code != FJ_PART_OWN_EQ || value != part->object ||
        Py_TYPE(value) != part->type) {
        return 0;
    }
    Py_hash_t hash = PyObject_Hash(value);
    return hash == -1 ? -1 : hash == part->hash;
}

/* (P) Compares a value with the subtree of a part.  1, 0, or -1 with an error. */
static int
has_part(const FjSnapshot *self, uint32_t index, PyObject *value)
{
    int unchanged = is_unchanged(&self->parts[index], value);
    if (unchanged != 0) {
        return unchanged;
    }
    FjStaticRule rule = fj_static_rule(self->registry, value);
    FjSnapshot *now = fj_snapshot_take(self->registry, value, rule, 1);
    int same = now == NULL ? -1 : equal_parts(self, index, now, 0);
    if (!FJ_FREE_THREADED && same > 0 && !now->may_run_python) {
        FjSnapshot *before = self->parts[index].equal;
        self->parts[index].equal = now;
        now = before;
    }
    fj_snapshot_free(now);
    return same;
}

int
fj_snapshot_has(FjSnapshot *self, PyObject *value)
{
    int same = fj_snapshot_match(self, value);
    if (same != FJ_NEEDS_PYTHON) {
        return same;
    }
    if (FJ_FREE_THREADED || self->count == 1 || self->cyclic) {
        return has_part(self, 0, value);
    }
    PyObject *stack[FJ_LEAFBUF_FEW];
    FjLeafBuf for_python;
    fj_leafbuf_init(&for_python, stack, FJ_LEAFBUF_FEW);
    const Comparison c = {.snapshot = self,
                          .for_python = &for_python,
                          .indices = PyMem_New(uint32_t, self->count)};
    if (c.indices == NULL) {
        return fj_raise_no_memory();
    }
    same = match_part(&c, self->parts, value);
    for (Py_ssize_t i = 0; i < for_python.count && same > 0; i++) {
        same = has_part(self, c.indices[i], for_python.items[i]);
    }
    PyObject *exception = fj_compat_get_raised(); /* none is set while objects die */
    fj_leafbuf_clear(&for_python);
    PyMem_Free(c.indices);
    fj_compat_set_raised(exception);
    return same == FJ_NEEDS_PYTHON ? -1 : same;
}

int
fj_static_equal_now(FjRegistry *registry, PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    if (Py_TYPE(a) != Py_TYPE(b)) {
        return 0;
    }
    FjStaticRule rule = fj_static_rule(registry, a);
    if (fj_static_rule_is_inert(rule) && fj_static_is_inert(registry, b)) {
        return fj_static_equal(registry, a, b);
    }
    FjSnapshot *snapshot = fj_snapshot_take(registry, a, rule, 1);
    int same = snapshot == NULL ? -1 : fj_snapshot_has(snapshot, b);
    fj_snapshot_free(snapshot);
    return same;
}
