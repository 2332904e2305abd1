/* Remembers large arguments by their addresses.
 *
 * A serving loop passes the same model on each call, and matching it looks at every node.  But
 * a Module, a list, a tuple and a dict each store the references to their children in one
 * block of memory, and an object with slots stores each at a fixed offset.  If a container's
 * references are unchanged, its children are the same objects, and only the children's own
 * references need to be compared.
 *
 * So the record of an argument consists of the address, the type and a copy of the block of
 * each container, parents first, and of the addresses of the array leaves and the numbered
 * objects (Sharing in structure.h).  Comparing it takes a few instructions per node.  If
 * nothing differs, the arrays and objects are passed on without a walk.
 *
 * A record holds no references: a model is freed as soon as the user drops it.  An address in
 * a record can therefore belong to a dead object, or to a new object in its place.  The check
 * is exact nevertheless:
 *
 * 1. No Python code runs from the start of a check until the arrays are pushed, or from the
 *    start of a match until its argument is recorded.  During that time no object changes,
 *    dies or is created.
 * 2. The check only follows addresses of live objects.  It compares the first container with
 *    the argument, which the caller holds.  It reads any other container after its parent's
 *    block equaled the copy: a live parent holds the address at that moment.
 * 3. The live object can be a different one than recorded.  That does no harm, because its
 *    type and block are compared, and a walk would read nothing else of a Module, list, tuple,
 *    named tuple or dict.  Of an object, a walk would also read where its class stores
 *    its attributes, and the check compares that, too.
 * 4. A type's address identifies the type, because no type in a record can die before it: the
 *    Structure holds the classes of its nodes, and Python its own types.
 * 5. A static leaf's address identifies its value.  To be recorded by address, it must be the
 *    Structure's very object (it can't die) and fixed (FJ_NODE_FIXED).  The same goes
 *    for None, and for a fixed tuple of such values that the Structure holds.  Every other
 *    static is compared with its snapshot in each check.  Dict keys are the Structure's very
 *    objects, too: a str or an int.
 * 6. An array leaf can be a different array at the same address.  Its type is compared and the
 *    current array is passed on, as a walk would do.  If an array is the only child of an
 *    object with slots, its address isn't compared but read in each check: a training loop
 *    replaces the value of a Variable.
 * 7. A further occurrence of an object isn't followed: its address is in its parent's block,
 *    and is compared with the address of the object with this number in the same call.
 *
 * An argument with any other kind of node isn't recorded.
 *
 * Runs no Python code. */
#include "walk/known.h"

#include "base/address_map.h"
#include "structure/fields.h"
#include "structure/record.h"
#include "walk/kind_dicts.h"

#define LONGEST_STREAK 64
#define PASSED 1000 /* names passed for each key of a dict in a different order */

/* A further occurrence of a numbered object. */
typedef struct {
    PyObject *object;
    uint32_t number;
} Ref;

struct FjKnownArgument {
    PyObject *object;    /* address of the recorded argument, or NULL */
    PyObject *candidate; /* address of the last call's argument */
    uint32_t parameter;
    uint32_t streak;          /* calls in a row with the candidate */
    uint32_t required_streak; /* the streak that starts a recording */
    FjRecord record;
    FjVector arrays;  /* addresses of the array leaves, in order */
    FjVector objects; /* addresses of the numbered objects, in order */
    FjVector refs;
};

struct FjKnownArguments {
    Py_ssize_t count; /* of large arguments */
    FjKnownArgument arguments[FJ_KNOWN_ARGUMENTS];
    FjVector distinct; /* addresses of the numbered objects of the last call, all distinct */
};

static void
forget(FjKnownArgument *argument)
{
    fj_record_clear(&argument->record);
    fj_vector_clear(&argument->arrays);
    fj_vector_clear(&argument->objects);
    fj_vector_clear(&argument->refs);
    argument->object = NULL;
}

/* Forgets an argument that has changed or can't be recorded, and doubles the streak required
 * for the next record: an argument that keeps changing isn't worth one. */
static void
give_up(FjKnownArgument *argument)
{
    forget(argument);
    argument->streak = 0;
    argument->required_streak = argument->required_streak < LONGEST_STREAK
                                    ? argument->required_streak * 2
                                    : LONGEST_STREAK;
}

FjKnownArguments *
fj_known_new(const FjStructure *structure)
{
    if (structure->num_numbered == 0 &&
        (structure->count < FJ_KNOWN_MIN_NODES || structure->may_run_python)) {
        return NULL;
    }
    FjKnownArguments *known = PyMem_Calloc(1, sizeof(FjKnownArguments));
    uint32_t node = 1;
    for (uint32_t i = 0; known != NULL && i < structure->nodes[0].arity; i++) {
        uint32_t end = structure->info[node].subtree_end;
        if (end - node >= FJ_KNOWN_MIN_NODES && known->count < FJ_KNOWN_ARGUMENTS) {
            known->arguments[known->count].parameter = i;
            known->arguments[known->count++].required_streak = 2;
        }
        node = end;
    }
    return known;
}

void
fj_known_free(FjKnownArguments *known)
{
    for (Py_ssize_t i = 0; known != NULL && i < known->count; i++) {
        forget(&known->arguments[i]);
    }
    if (known != NULL) {
        fj_vector_clear(&known->distinct);
        PyMem_Free(known);
    }
}

FjKnownArgument *
fj_known_find(FjKnownArguments *known, Py_ssize_t parameter)
{
    for (Py_ssize_t i = 0; i < known->count; i++) {
        if ((Py_ssize_t)known->arguments[i].parameter == parameter) {
            return &known->arguments[i];
        }
    }
    return NULL;
}

int
fj_known_are_distinct(FjKnownArguments *known, PyObject *const *objects, Py_ssize_t count)
{
    FjAddressMap map = {.entries = NULL};
    int distinct = 1;
    if (known != NULL && known->distinct.count == count &&
        memcmp(known->distinct.items, objects, (size_t)count * sizeof(PyObject *)) == 0) {
        return 1;
    }
    for (Py_ssize_t i = 0; i < count && distinct > 0; i++) {
        distinct = fj_address_map_find(&map, objects[i]) < 0;
        if (distinct && fj_address_map_add(&map, objects[i], (uint32_t)i) < 0) {
            distinct = -1;
        }
    }
    fj_address_map_clear(&map);
    if (distinct > 0 && known != NULL) {
        known->distinct.count = 0;
        fj_vector_append_addresses(&known->distinct, objects, count);
    }
    return distinct;
}

/* ---- checking ---- */

static int
is_unchanged(FjKnownArgument *argument, FjRegistry *registry)
{
    PyObject **arrays = argument->arrays.items;
    if (!fj_record_is_same(&argument->record, arrays)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < argument->arrays.count; i++) {
        if (!fj_registry_is_array_type(registry, Py_TYPE(arrays[i]))) {
            return 0;
        }
    }
    return 1;
}

int
fj_known_check(FjKnownArgument *argument, FjRegistry *registry, PyObject *object)
{
    if (argument->object == NULL || argument->object != object) {
        return 0;
    }
    if (FJ_LIKELY(is_unchanged(argument, registry))) {
        argument->streak = 0;
        return 1;
    }
    give_up(argument); /* changed, or a different object at the same address */
    return 0;
}

int
fj_known_push(const FjKnownArgument *argument, FjLeafBuf *arrays, FjLeafBuf *objects)
{
    const Ref *refs = argument->refs.items;
    if (fj_leafbuf_extend(arrays, argument->arrays.items, argument->arrays.count) < 0 ||
        (argument->objects.count > 0 &&
         fj_leafbuf_extend(objects, argument->objects.items, argument->objects.count) < 0)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < argument->refs.count; i++) {
        if (objects->items[refs[i].number] != refs[i].object) {
            return 0;
        }
    }
    return 1;
}

/* ---- recording ---- */

/* The walk that records an argument.  It visits the nodes in order: a container before its
 * children.  The functions below return 1, or 0 if the object can't be recorded. */
typedef struct {
    FjKnownArgument *argument;
    const FjStructure *structure;
    const FjNode *first;
    PyObject **objects;  /* of each node from `first` on; set with its parent */
    PyObject **children; /* room for the children of any container */
} Recording;

static int
set_children(const Recording *r, const FjNode *node, PyObject *const *children)
{
    const FjNode *child = node + 1;
    for (uint32_t i = 0; i < node->arity; i++) {
        r->objects[child - r->first] = children[i];
        child = fj_structure_skip(r->structure, child);
    }
    return 1;
}

/* For a dict with exactly these keys: these very objects, which the Structure holds. */
static int
record_dict(const Recording *r, const FjNode *node, PyObject *keys, PyObject *dict)
{
    if (!PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) != (Py_ssize_t)node->arity ||
        !fj_peek_objects(dict, keys, node->arity, PASSED, r->children)) {
        return 0;
    }
    fj_record_add_dict(&r->argument->record, dict);
    return set_children(r, node, r->children);
}

/* For a Module that isn't a wrapper, without extra attributes. */
static int
record_module(const Recording *r, const FjNode *node, PyObject *object)
{
    const FjNodeKind *kind = fj_node_kind(node);
    FjRecord *record = &r->argument->record;
    FjFieldView view;
    if (fj_fields_view(object, &view) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (view.used != fj_node_kind_fields(kind) || view.used != node->arity) {
        return 0;
    }
    if (view.values == NULL && view.dict != NULL) {
        fj_record_add(record, object, FJ_IN_ITS_DICT, &view.dict, 1);
        return record_dict(r, node, kind->names, view.dict);
    }
    if (view.values == NULL || kind->placed != view.used || kind->reach > view.used) {
        return 0;
    }
    /* The first values are the fields, none of them absent. */
    fj_record_add(record, object, FJ_IN_VALUES, view.values, view.used);
    for (uint32_t i = 0; i < node->arity; i++) {
        r->children[i] = view.values[kind->places[i]];
    }
    return set_children(r, node, r->children);
}

static int
record_object(const Recording *r, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjRecord *record = &r->argument->record;
    FjRecorded *added = fj_record_add_fields(record, object, kind);
    if (added == NULL) {
        return 0;
    }
    if (added->place == FJ_IN_SLOTS && kind->dynamic == 1 && node[1].code == FJ_ARRAY) {
        added->array = (uint32_t)r->argument->arrays.count + 1;
    }
    PyObject *const *end = (PyObject **)record->items.items + record->items.count;
    return set_children(r, node, end - added->size);
}

/* Records a value by its snapshot, unless it is fixed and the Structure's own. */
static int
record_static(const Recording *r, const FjNode *node, PyObject *value)
{
    FjRecord *record = &r->argument->record;
    FjSnapshot *snapshot = fj_structure_info(r->structure, node)->snapshot;
    PyObject *expected = fj_structure_value(node);
    if (value == expected && (node->flags & FJ_NODE_FIXED)) {
        return 1;
    }
    if (snapshot == NULL) { /* a different inert object: its address can be reused */
        return 0;
    }
    fj_record_add_static(record, value, snapshot, fj_snapshot_is_same);
    if (value != expected) {
        fj_record_add_static(record, expected, snapshot, fj_snapshot_is_same);
    }
    return 1;
}

static int
record_ref(FjKnownArgument *argument, uint32_t number, PyObject *object)
{
    Ref *ref = fj_vector_append(&argument->refs, 1, sizeof(Ref));
    if (ref != NULL) {
        *ref = (Ref){object, number};
    }
    return ref != NULL;
}

static int
record_any(const Recording *r, const FjNode *node, PyObject *object)
{
    FjKnownArgument *argument = r->argument;
    switch (node->code) {
    case FJ_NONE:
        return 1;
    case FJ_ARRAY:
        return fj_vector_append_addresses(&argument->arrays, &object, 1);
    case FJ_STATIC:
        return record_static(r, node, object);
    case FJ_TUPLE:
    case FJ_LIST:
    case FJ_NAMEDTUPLE:
        fj_record_add_items(&argument->record, object,
                            node->code == FJ_LIST ? FJ_IN_LIST : FJ_IN_TUPLE);
        return set_children(r, node, PySequence_Fast_ITEMS(object));
    case FJ_DICT:
        return record_dict(r, node, node->aux, object);
    case FJ_MODULE:
        return record_module(r, node, object);
    case FJ_OBJECT:
        return record_object(r, node, object);
    case FJ_CUSTOM:
        return (node->flags & FJ_NODE_IS_ITS_AUX) && record_static(r, node, object);
    case FJ_REF:
        return record_ref(argument, fj_node_number(node), object);
    default:
        return 0;
    }
}

/* Records an argument that matches the subtree of `first`. */
static int
record(FjKnownArgument *argument, const FjStructure *structure, const FjNode *first,
       PyObject *object)
{
    const FjNode *end = fj_structure_skip(structure, first);
    PyObject **objects = PyMem_New(PyObject *, 2 * (size_t)(end - first));
    if (objects == NULL) {
        return 0;
    }
    const Recording r = {argument, structure, first, objects, objects + (end - first)};
    int done = 1;
    objects[0] = object;
    for (const FjNode *node = first; node < end && done;) {
        object = objects[node - first];
        int is_fixed = node->code == FJ_TUPLE && object == node->aux;
        if (node->flags & FJ_NODE_NUMBERED) {
            done = fj_vector_append_addresses(&argument->objects, &object, 1);
        }
        done = done && (is_fixed || record_any(&r, node, object)) && !argument->record.failed;
        node = is_fixed ? fj_structure_skip(structure, node) : node + 1;
    }
    PyMem_Free(objects);
    return done;
}

void
fj_known_note(FjKnownArgument *argument, const FjStructure *structure, const FjNode *node,
              PyObject *object)
{
    argument->streak = object == argument->candidate ? argument->streak + 1 : 1;
    argument->candidate = object;
    if (argument->streak < argument->required_streak) {
        return; /* the argument recorded before could come back */
    }
    forget(argument);
    if (record(argument, structure, node, object)) {
        argument->object = object;
    }
    else {
        give_up(argument);
    }
}
