/* What is known of large arguments, by addresses.
 *
 * A serving loop passes the same model on each call, and matching it looks at each of its
 * nodes.  But a Module, a list, a tuple and a dict each keep the references to their children
 * in one block of memory, and an object with slots keeps each in a place that does not change.
 * If a container's references are unchanged, each child is the same object as before, and only
 * those of the children need to be compared.
 *
 * So the record of an argument consists of, for each container, parents before children, its
 * address, its type and a copy of its block; and of the addresses of the array leaves and of
 * the numbered objects (Sharing in structure.h).  Comparing it takes a few instructions a
 * node.  If nothing differs, the arrays and objects are passed on without a walk.
 *
 * A record holds no reference to any of these objects, so that a model is freed as soon as the
 * user drops it.  Any address in it may therefore be that of a dead object, or of a new object
 * in the same place.  A check is exact all the same:
 *
 * 1. No Python code runs from the start of a check until the walk has pushed the arrays, so no
 *    object changes, dies or is created in that time.
 * 2. An address is only followed if it is that of a live object.  The first container is
 *    compared with the argument, which the caller holds.  Any other is looked at after its
 *    parent's block has been found to be equal to the copy, so its address is among the
 *    references that the parent, which is alive, holds now.
 * 3. The live object may be another one than was recorded.  This does no harm: its type and
 *    its block are compared, and a walk would look at nothing else of a Module, a list, a
 *    tuple, a named tuple or a dict; of an object, it would look at where the class keeps its
 *    attributes, which is compared too.
 * 4. A type's address stands for the type, since no type in a record can die before it: the
 *    Structure holds the classes of its nodes, and Python holds its own types.
 * 5. A static leaf's address stands for its value.  There is a record only if each static leaf
 *    is the very object that the Structure holds, so it cannot die, and if it is immutable
 *    (FJ_NODE_SELF_EQUAL), so it cannot change.  Any other static is compared with its
 *    snapshot in each check.  The same goes for None, and for a tuple of nothing but such
 *    values that the Structure holds as a whole.  The keys of a dict stand for themselves in
 *    the same way: each is the very object that the Structure holds, a str or an int.
 * 6. An array leaf may be another array than was recorded, in the same place.  Its type is
 *    compared, and the array that is there now is passed on, as a walk would do.  The only
 *    child of an object with slots may be replaced by another array, as a training loop does
 *    with the value of a Variable: its address is not compared, but read again in each check.
 * 7. An object that occurs again is not followed: its address is in its parent's block, and is
 *    compared with that of the object of this number in the same call.
 *
 * There is no record of an argument that contains any other kind of node.
 *
 * No Python code runs in this file.
 */
#include "walk/known.h"

#include "base/address_map.h"
#include "structure/fields.h"
#include "structure/record.h"

#define LONGEST_STREAK 64
#define TRIED 1000 /* how many entries of a dict are searched for a key */

/* An object that occurs again. */
typedef struct {
    PyObject *object;
    uint32_t number;
} Ref;

struct FjKnownArgument {
    PyObject *object;         /* the address of the argument; NULL while nothing is known */
    PyObject *candidate;      /* the address of the argument of the last call */
    uint32_t parameter;       /* its index */
    uint32_t streak;          /* how many calls in a row had the candidate */
    uint32_t required_streak; /* the streak at which it is recorded */
    FjRecord record;          /* its containers */
    FjVector arrays;          /* addresses of the array leaves, in order */
    FjVector objects;         /* addresses of the numbered objects, in order */
    FjVector refs;            /* of Ref */
};

struct FjKnownArguments {
    Py_ssize_t count; /* of large arguments */
    FjKnownArgument arguments[FJ_KNOWN_ARGUMENTS];
    FjVector distinct; /* addresses of the numbered objects of the last call, which are
                        * distinct */
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

/* Forgets an argument that has changed or cannot be recorded, and doubles the streak that the
 * next record requires: an argument that keeps changing is not worth one. */
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
    if (structure->num_identities == 0 &&
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
    give_up(argument); /* it has changed, or is another object at the same address */
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

int
fj_known_start(FjKnownArgument *argument, PyObject *object)
{
    argument->streak = object == argument->candidate ? argument->streak + 1 : 1;
    argument->candidate = object;
    if (argument->streak < argument->required_streak) {
        return 0; /* another argument that is known may come back */
    }
    forget(argument);
    return 1;
}

void
fj_known_end(FjKnownArgument *argument, int matched, PyObject *object, PyObject *const *arrays,
             Py_ssize_t num_arrays, PyObject *const *objects, Py_ssize_t num_objects)
{
    if (!matched || argument->record.failed ||
        !fj_vector_append_addresses(&argument->arrays, arrays, num_arrays) ||
        !fj_vector_append_addresses(&argument->objects, objects, num_objects)) {
        give_up(argument);
        return;
    }
    argument->object = object;
}

void
fj_known_fail(FjKnownArgument *argument)
{
    argument->record.failed = 1;
}

/* Whether the first `count` keys are, as these very objects, keys of the dict. */
static int
has_keys(PyObject *dict, PyObject *keys, uint32_t count)
{
    Py_ssize_t position = 0;
    for (uint32_t i = 0; i < count; i++) {
        PyObject *wanted = PyTuple_GET_ITEM(keys, i), *key, *value;
        if ((!fj_compat_dict_next(dict, &position, &key, &value) || key != wanted) &&
            fj_compat_dict_find_object(dict, wanted, TRIED, &position) == NULL) {
            return 0;
        }
    }
    return 1;
}

/* Adds a dict with these keys. */
static void
add_dict(FjKnownArgument *argument, PyObject *keys, uint32_t count, PyObject *dict)
{
    if (PyDict_CheckExact(dict) && PyDict_GET_SIZE(dict) == (Py_ssize_t)count &&
        has_keys(dict, keys, count)) {
        fj_record_add_dict(&argument->record, dict);
    }
    else {
        fj_known_fail(argument);
    }
}

/* Adds a Module that is no wrapper, and has no other attributes. */
static void
add_module(FjKnownArgument *argument, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    if (fj_fields_view(object, &view) < 0) {
        PyErr_Clear();
        fj_known_fail(argument);
    }
    else if (view.used != fj_node_kind_fields(kind) || view.used != node->arity) {
        fj_known_fail(argument);
    }
    else if (view.values != NULL && kind->placed == view.used && kind->reach <= view.used) {
        /* The first values are those of the fields, none of which may be absent. */
        fj_record_add(&argument->record, object, FJ_IN_VALUES, view.values, view.used);
    }
    else if (view.values == NULL && view.dict != NULL) {
        fj_record_add(&argument->record, object, FJ_IN_ITS_DICT, &view.dict, 1);
        add_dict(argument, kind->names, node->arity, view.dict);
    }
    else {
        fj_known_fail(argument);
    }
}

/* Adds an object. */
static void
add_object(FjKnownArgument *argument, const FjNode *node, PyObject *object,
           Py_ssize_t num_arrays)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjRecorded *added = fj_record_add_fields(&argument->record, object, kind);
    if (added != NULL && added->place == FJ_IN_SLOTS && kind->dynamic == 1 &&
        node[1].code == FJ_ARRAY) {
        added->array = (uint32_t)num_arrays + 1;
    }
}

void
fj_known_add(FjKnownArgument *argument, const FjStructure *structure, const FjNode *node,
             PyObject *object, Py_ssize_t num_arrays)
{
    const PyTypeObject *type = fj_structure_info(structure, node)->type;
    FjRecord *record = &argument->record;
    if (record->failed || (type != NULL && Py_TYPE(object) != type)) {
        record->failed = 1;
    }
    else if (object == node->aux || (node->flags & FJ_NODE_ITSELF)) {
        /* A tuple that never changes is known by its address, a static by its snapshot. */
    }
    else if (type == &PyDict_Type) {
        add_dict(argument, node->aux, node->arity, object);
    }
    else if (fj_node_has_kind(node) && node->code != FJ_NAMEDTUPLE) {
        node->code == FJ_MODULE ? add_module(argument, node, object)
                                : add_object(argument, node, object, num_arrays);
    }
    else if (PyList_CheckExact(object) || PyTuple_Check(object)) {
        fj_record_add_items(record, object, PyTuple_Check(object) ? FJ_IN_TUPLE : FJ_IN_LIST);
    }
    else {
        record->failed = 1;
    }
}

void
fj_known_add_static(FjKnownArgument *argument, const FjStructure *structure,
                    const FjNode *node, PyObject *value)
{
    FjSnapshot *snapshot = fj_structure_info(structure, node)->snapshot;
    PyObject *expected = fj_structure_value(node);
    fj_record_add_static(&argument->record, value, snapshot, fj_snapshot_is_same);
    if (value != expected) {
        fj_record_add_static(&argument->record, expected, snapshot, fj_snapshot_is_same);
    }
}

void
fj_known_add_ref(FjKnownArgument *argument, PyObject *object, uint32_t number)
{
    Ref *ref = fj_vector_append(&argument->refs, 1, sizeof(Ref));
    if (ref == NULL) {
        fj_known_fail(argument);
        return;
    }
    *ref = (Ref){object, number};
}
