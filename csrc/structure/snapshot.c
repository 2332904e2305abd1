/* Takes snapshots of static values and hashes them (snapshot.h).
 *
 * Python code can run in the __hash__ of values, in keys, in the `fixed` of a kind, in
 * classify() and in finalizers.  Before that, mutable contents are copied to a tuple. */
#include "structure/snapshot.h"

#include "base/hash.h"
#include "base/leafbuf.h"
#include "structure/fields.h"
#include "structure/statics.h"

/* The values around the current one, innermost first. */
typedef struct Ancestors {
    PyObject *value;
    const struct Ancestors *next;
    uint32_t depth;
} Ancestors;

static Py_ssize_t take(FjSnapshot *self, PyObject *value, FjStaticRule rule, int field,
                       const Ancestors *ancestors);

static int
grow(FjSnapshot *self)
{
    uint32_t capacity = self->capacity * 4;
    FjSnapshotPart *before = self->parts == self->few ? NULL : self->parts;
    FjSnapshotPart *parts = capacity < self->capacity
                                ? NULL
                                : PyMem_Realloc(before, capacity * sizeof(FjSnapshotPart));
    if (parts == NULL) {
        return fj_raise_no_memory();
    }
    if (before == NULL) {
        memcpy(parts, self->few, sizeof(self->few));
    }
    self->parts = parts;
    self->capacity = capacity;
    return 0;
}

/* Functions that add parts return the index of the first one, or -1 with an error. */

/* `hash` is final if the part has no children. */
static Py_ssize_t
add_part(FjSnapshot *self, FjSnapshotCode code, PyObject *object, Py_hash_t hash)
{
    if (self->count == self->capacity && grow(self) < 0) {
        return -1;
    }
    int has_type = code != FJ_PART_INERT && code != FJ_PART_ANCESTOR;
    PyTypeObject *type =
        has_type ? (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object)) : NULL;
    uint32_t index = self->count++;
    self->parts[index] = (FjSnapshotPart){.object = Py_NewRef(object),
                                          .type = type,
                                          .hash = hash,
                                          .end = index + 1,
                                          .code = (uint8_t)code,
                                          .flags = code == FJ_PART_INERT ? FJ_PART_FIXED : 0};
    return index;
}

static Py_ssize_t
take_inert(FjSnapshot *self, PyObject *value, FjStaticRule rule)
{
    Py_hash_t hash;
    return fj_static_hash(self->registry, value, rule, &hash) < 0
               ? -1
               : add_part(self, FJ_PART_INERT, value, hash);
}

/* Returns how many levels up `value` contains itself, or 0. */
static uint32_t
levels_up(const Ancestors *ancestors, PyObject *value)
{
    uint32_t levels = 1;
    for (; ancestors != NULL; ancestors = ancestors->next, levels++) {
        if (ancestors->value == value) {
            return levels;
        }
    }
    return 0;
}

static Py_ssize_t
add_ancestor(FjSnapshot *self, PyObject *value, uint32_t levels)
{
    Py_ssize_t index = add_part(self, FJ_PART_ANCESTOR, value, (Py_hash_t)levels);
    if (index >= 0) {
        self->cyclic = 1;
    }
    return index;
}

static void
hash_children(FjSnapshot *self, uint32_t index)
{
    FjSnapshotPart *part = &self->parts[index];
    Py_uhash_t hash = fj_hash_mix(part->code, fj_hash_address(part->type)), sum = 0;
    for (uint32_t i = index + 1; i < part->end; i = self->parts[i].end) {
        Py_uhash_t child = (Py_uhash_t)self->parts[i].hash;
        if (part->code == FJ_PART_SET) { /* in any order */
            sum += fj_hash_mix(0, child);
        }
        else {
            hash = fj_hash_mix(hash, child);
        }
    }
    part->hash = fj_hash_finish(fj_hash_mix(fj_hash_mix(hash, sum), part->children));
}

/* Adds a part with the items of a tuple as children.  Steals `items` (NULL: an earlier error).
 */
static Py_ssize_t
take_items(FjSnapshot *self, FjSnapshotCode code, PyObject *value, PyObject *items, int field,
           const Ancestors *ancestors)
{
    Py_ssize_t count = items == NULL ? 0 : PyTuple_GET_SIZE(items);
    Py_ssize_t index = items == NULL ? -1 : add_part(self, code, value, 0);
    if (index >= 0 && count > UINT32_MAX) {
        PyErr_NoMemory();
        index = -1;
    }
    if (index >= 0) {
        FjSnapshotPart *part = &self->parts[index];
        part->children = (uint32_t)count;
        part->flags =
            ancestors->depth % FJ_SNAPSHOT_STACK_STEP == 0 ? FJ_PART_CHECKS_STACK : 0;
    }
    for (Py_ssize_t i = 0; i < count && index >= 0; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        FjStaticRule rule = fj_static_rule(self->registry, item);
        if (take(self, item, rule, field, ancestors) < 0) {
            index = -1;
        }
    }
    if (index >= 0) {
        self->parts[index].end = self->count;
        hash_children(self, (uint32_t)index);
    }
    Py_XDECREF(items);
    return index;
}

static int
get_referent(PyObject *referent, void *found)
{
    *(PyObject **)found = referent;
    return 1;
}

PyObject *
fj_snapshot_dict(PyObject *value)
{
    if (Py_TYPE(value) == &PyDictProxy_Type) {
        PyObject *mapping = NULL; /* it has no other function in the C API */
        (void)Py_TYPE(value)->tp_traverse(value, get_referent, &mapping);
        value = mapping;
    }
    return value != NULL && PyDict_CheckExact(value) ? value : NULL;
}

/* Returns a new tuple of alternating keys and values. */
static PyObject *
dict_items(PyObject *dict)
{
    PyObject *pairs = PyDict_Items(dict);
    Py_ssize_t count = pairs == NULL ? 0 : PyList_GET_SIZE(pairs);
    PyObject *items = pairs == NULL ? NULL : PyTuple_New(2 * count);
    for (Py_ssize_t i = 0; items != NULL && i < count; i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        PyTuple_SET_ITEM(items, 2 * i, Py_NewRef(PyTuple_GET_ITEM(pair, 0)));
        PyTuple_SET_ITEM(items, 2 * i + 1, Py_NewRef(PyTuple_GET_ITEM(pair, 1)));
    }
    Py_XDECREF(pairs);
    return items;
}

static PyObject *
set_items(PyObject *set)
{
    if (PyAnySet_CheckExact(set)) {
        return fj_tuple_of(set);
    }
    PyObject *iterator = PyFrozenSet_Type.tp_iter(set); /* ignores an overridden `__iter__` */
    PyObject *items = iterator == NULL ? NULL : fj_tuple_of(iterator);
    Py_XDECREF(iterator);
    return items;
}

/* Returns a new tuple of an object's compared fields.  NULL without an error if a field isn't
 * in its storage, or if another thread can change it.  Runs no Python code, except that Python
 * 3.11 can start a garbage collection after the fields have been read. */
static PyObject *
fields_of(PyObject *object, FjNodeKind *kind)
{
    PyObject *stack[FJ_FIELDS_INLINE], *owned[FJ_LEAFBUF_FEW];
    PyObject *const *stored = FJ_FREE_THREADED ? NULL : fj_fields_stored(kind, object, stack);
    PyObject *fields = NULL;
    FjLeafBuf buf; /* holds the fields until the tuple does */
    fj_leafbuf_init(&buf, owned, FJ_LEAFBUF_FEW);
    if (stored != NULL && fj_leafbuf_extend(&buf, stored, fj_node_kind_fields(kind)) == 0) {
        fields = fj_leafbuf_as_tuple(&buf);
    }
    fj_leafbuf_clear(&buf); /* the object holds them too */
    return fields;
}

static int
has_no_hash(PyObject *value)
{
    return Py_TYPE(value)->tp_hash == PyObject_HashNotImplemented;
}

/* Takes a value with its own __eq__ and no key.  A field whose __hash__ raises
 * compares by identity. */
static Py_ssize_t
take_unknown(FjSnapshot *self, PyObject *value, FjNodeKind *contents, int field,
             const Ancestors *ancestors)
{
    PyObject *fields = contents == NULL ? NULL : fields_of(value, contents);
    if (fields == NULL && PyErr_Occurred()) {
        return -1;
    }
    Py_hash_t hash = has_no_hash(value) && field ? -1 : PyObject_Hash(value);
    FjSnapshotCode code = FJ_PART_OWN_EQ;
    if (hash == -1) {
        if (PyErr_Occurred()) {
            if (!field || !PyErr_ExceptionMatches(PyExc_Exception) ||
                PyErr_ExceptionMatches(PyExc_MemoryError) ||
                PyErr_ExceptionMatches(PyExc_RecursionError)) {
                Py_XDECREF(fields);
                return -1;
            }
            PyErr_Clear();
        }
        Py_CLEAR(fields);
        code = FJ_PART_IDENTITY;
        hash = fj_hash_finish(fj_hash_mix(1, fj_hash_address(value)));
    }
    if (fields == NULL) {
        self->may_run_python = 1;
        return add_part(self, code, value, hash);
    }
    Py_ssize_t index = take_items(self, code, value, fields, 1, ancestors);
    if (index >= 0) { /* different objects compare by their own __eq__ */
        self->parts[index].kind = (FjNodeKind *)Py_NewRef((PyObject *)contents);
        self->parts[index].hash = hash;
    }
    return index;
}

/* Returns the key of a value. */
static PyObject *
call_key(PyObject *function, PyObject *value)
{
    Py_INCREF(function);
    PyObject *key = PyObject_CallOneArg(function, value);
    Py_DECREF(function);
    return key;
}

/* Takes a value by its key.  Steals `key` (NULL: an earlier error).  `flags`: with
 * FJ_PART_ITSELF or 0. */
static Py_ssize_t
take_key(FjSnapshot *self, PyObject *value, PyObject *key, int flags,
         const Ancestors *ancestors)
{
    PyObject *items = key == NULL ? NULL : PyTuple_Pack(1, key);
    Py_XDECREF(key);
    Py_ssize_t index = take_items(self, FJ_PART_KEY, value, items, 1, ancestors);
    if (index >= 0) {
        self->parts[index].flags |= (uint8_t)flags;
        self->may_run_python |= flags == 0;
    }
    return index;
}

/* Takes a value by the fields or the key of its kind. */
static Py_ssize_t
take_by_kind(FjSnapshot *self, PyObject *value, FjNodeKind *kind, int field,
             const Ancestors *ancestors)
{
    if (kind->key == NULL) {
        return take_unknown(self, value, kind->fixed == NULL ? kind->contents : NULL, field,
                            ancestors);
    }
    if (!field && PyObject_Hash(value) == -1) {
        return -1;
    }
    /* With `fixed`, use the key: equal fields would be a stricter condition. */
    PyObject *fields = kind->contents == NULL || kind->fixed != NULL
                           ? NULL
                           : fields_of(value, kind->contents);
    if (fields != NULL) {
        Py_ssize_t index = take_items(self, FJ_PART_FIELDS, value, fields, 1, ancestors);
        if (index >= 0) {
            self->parts[index].kind = (FjNodeKind *)Py_NewRef((PyObject *)kind->contents);
        }
        return index;
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    /* Checked before and after making the key, which can let another thread run. */
    int is_itself = kind->key_is_contents && fj_static_has_no_attributes(value);
    PyObject *key = call_key(kind->key, value);
    is_itself = is_itself && fj_static_has_no_attributes(value);
    int flags = !is_itself                           ? 0
                : Py_TYPE(value)->tp_dictoffset != 0 ? FJ_PART_ITSELF | FJ_PART_EMPTY_DICT
                                                     : FJ_PART_ITSELF;
    return take_key(self, value, key, flags, ancestors);
}

/* Drops the mutable objects inside a fixed value: nothing compares them by address.
 * Types such as Flax's HashableMapping check that nobody else holds them. */
static void
forget_inside(FjSnapshot *self, Py_ssize_t index)
{
    for (uint32_t i = (uint32_t)index + 1; i < self->parts[index].end; i++) {
        if (self->parts[i].code >= FJ_PART_SEQUENCE) {
            Py_CLEAR(self->parts[i].object);
        }
    }
}

static Py_ssize_t
take_by_type(FjSnapshot *self, PyObject *value, int field, const Ancestors *ancestors)
{
    PyObject *registered = fj_static_registered_key(self->registry, Py_TYPE(value));
    if (registered != NULL) {
        return !field && PyObject_Hash(value) == -1
                   ? -1
                   : take_key(self, value, call_key(registered, value), 0, ancestors);
    }
    PyObject *dict = fj_snapshot_dict(value);
    if (dict != NULL) {
        return !field && PyObject_Hash(value) == -1
                   ? -1
                   : take_items(self, FJ_PART_DICT, value, dict_items(dict), field, ancestors);
    }
    int may_run_python = self->may_run_python;
    FjNodeKind *kind = fj_registry_kind(self->registry, value);
    int is_fixed = kind == NULL ? -1 : fj_static_kind_is_fixed(kind, value);
    Py_ssize_t index = is_fixed < 0 ? -1 : take_by_kind(self, value, kind, field, ancestors);
    if (index >= 0 && is_fixed) {
        self->parts[index].flags |= FJ_PART_FIXED;
        self->parts[index].flags &= (uint8_t)~FJ_PART_ITSELF; /* nothing looks inside */
        self->parts[index].kind = (FjNodeKind *)Py_XNewRef((PyObject *)kind->contents);
        self->may_run_python = may_run_python;
        forget_inside(self, index);
    }
    Py_XDECREF(kind);
    return index;
}

static Py_ssize_t
take_container(FjSnapshot *self, PyObject *value, FjStaticRule rule, int field,
               const Ancestors *ancestors)
{
    Py_ssize_t index;
    switch (rule) {
    case FJ_TUPLE_ITEMS:
        return take_items(self, FJ_PART_SEQUENCE, value, Py_NewRef(value), field, ancestors);
    case FJ_LIST_ITEMS:
        return take_items(self, FJ_PART_SEQUENCE, value, PyList_AsTuple(value), field,
                          ancestors);
    case FJ_DICT_ITEMS:
        return take_items(self, FJ_PART_DICT, value, dict_items(value), field, ancestors);
    case FJ_SET_ITEMS:
        index = take_items(self, FJ_PART_SET, value, set_items(value), field, ancestors);
        if (index >= 0 && PyFrozenSet_CheckExact(value)) {
            self->parts[index].flags |= FJ_PART_ITSELF;
        }
        self->may_run_python |= !PyFrozenSet_CheckExact(value);
        return index;
    default:
        return take_by_type(self, value, field, ancestors);
    }
}

static Py_ssize_t
take(FjSnapshot *self, PyObject *value, FjStaticRule rule, int field,
     const Ancestors *ancestors)
{
    if (fj_static_rule_is_inert(rule)) {
        return take_inert(self, value, rule);
    }
    if (!field && (rule == FJ_LIST_ITEMS || rule == FJ_DICT_ITEMS || has_no_hash(value))) {
        (void)PyObject_Hash(value); /* raises */
        return -1;
    }
    uint32_t levels = levels_up(ancestors, value);
    if (levels > 0) {
        return add_ancestor(self, value, levels);
    }
    if (Py_EnterRecursiveCall(" while looking at a static value")) {
        return -1;
    }
    const Ancestors here = {value, ancestors, ancestors == NULL ? 1 : ancestors->depth + 1};
    Py_ssize_t index = take_container(self, value, rule, field, &here);
    Py_LeaveRecursiveCall();
    return index;
}

FjSnapshot *
fj_snapshot_take(FjRegistry *registry, PyObject *value, FjStaticRule rule, int field)
{
    FjSnapshot *self = PyMem_Malloc(sizeof(FjSnapshot));
    if (self == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    self->registry = (FjRegistry *)Py_NewRef((PyObject *)registry);
    self->parts = self->few;
    self->count = 0;
    self->capacity = (uint32_t)Py_ARRAY_LENGTH(self->few);
    self->record = (FjRecord){.failed = 0};
    self->recorded = 0;
    self->may_run_python = 0;
    self->cyclic = 0;
    if (take(self, value, rule, field, NULL) < 0) {
        fj_snapshot_free(self);
        return NULL;
    }
    return self;
}

void
fj_snapshot_free(FjSnapshot *self)
{
    if (self != NULL) {
        PyObject *exception = fj_compat_get_raised(); /* none is set while objects die */
        for (uint32_t i = 0; i < self->count; i++) {
            Py_XDECREF(self->parts[i].object);
            Py_XDECREF(self->parts[i].type);
            Py_XDECREF(self->parts[i].kind);
            fj_snapshot_free(self->parts[i].equal);
        }
        if (self->parts != self->few) {
            PyMem_Free(self->parts);
        }
        fj_record_clear(&self->record);
        Py_DECREF(self->registry);
        PyMem_Free(self);
        fj_compat_set_raised(exception);
    }
}

int
fj_snapshot_traverse(const FjSnapshot *self, visitproc visit, void *arg)
{
    if (self != NULL) {
        for (uint32_t i = 0; i < self->count; i++) {
            Py_VISIT(self->parts[i].object);
            Py_VISIT(self->parts[i].type);
            Py_VISIT(self->parts[i].kind);
            fj_snapshot_traverse(self->parts[i].equal, visit, arg);
        }
        Py_VISIT(self->registry);
    }
    return 0;
}
