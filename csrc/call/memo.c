/* Snapshots of a variant's large arguments, by addresses.
 *
 * A serving loop passes the same model on each call, and matching it looks at each of its
 * nodes.  But a Module, a list, a tuple and a dict each keep the references to their children
 * in one block of memory, and an object with slots keeps each in a place that does not change.
 * If a container's references are unchanged, each child is the same object as before, and only
 * those of the children need to be compared.
 *
 * So a snapshot consists of, for each container, parents before children, its address, its
 * type and a copy of its block; and of the address of each array leaf.  Comparing it takes a
 * few instructions a node.  If nothing differs, the arrays are passed on without a walk.
 *
 * A memo holds no reference to any of these objects, so that a model is freed as soon as the
 * user drops it.  Any address in it may therefore be that of a dead object, or of a new object
 * in the same place.  A check is exact all the same:
 *
 * 1. No Python code runs from the start of a check until the call has pushed the arrays, so no
 *    object changes, dies or is created in that time.
 * 2. An address is only followed if it is that of a live object.  The first container is
 *    compared with the argument, which the caller holds.  Any other is looked at after its
 *    parent's block has been found to be equal to the copy, so its address is among the
 *    references that the parent, which is alive, holds now.
 * 3. The live object may be another one than the snapshot saw.  This does no harm: its type
 *    and its block are compared, and a walk would look at nothing else of a Module, a list, a
 *    tuple, a named tuple or a dict; of an object, it would look at where the class keeps its
 *    attributes, which is compared too.
 * 4. A type's address stands for the type, since no type in a snapshot can die before the
 *    memo: the Structure holds the classes of its nodes, and Python holds its own types.
 * 5. A static leaf's address stands for its value.  A snapshot is only taken if each static
 *    leaf is the very object that the Structure holds, so it cannot die, and if it is inert
 *    (statics.h), so it cannot change, or has contents (contents.h): then a check compares
 *    them.  The
 *    same goes for None, and for a tuple of nothing but inert static values that the
 *    Structure holds as a whole.  The keys of a dict stand for themselves in the same way:
 *    each is the very object that the Structure holds, a str or an int.
 * 6. An array leaf may be another array than the snapshot saw, in the same place.  Its type is
 *    compared, and the array that is there now is passed on, as a walk would do.  The only
 *    child of an object with slots may be replaced by another array, as a training loop does
 *    with the value of a Variable: its address is not compared, but read again in each check.
 *
 * 7. A REF (Sharing in structure.h) is not followed: its address is in its parent's block, and
 *    what it refers to is compared by those who know which objects are one.
 *
 * There is no snapshot of an argument that contains any other kind of node.  (A Module's block
 * holds all of its fields, and nothing else: see snapshot_attributes.)
 *
 * No Python code runs in this file.
 */
#include "call/memo.h"

#include "structure/fields.h"

#define LONGEST_STREAK 64
#define FAR 1000    /* how many entries of a dict are searched for a key */
#define DICT_ITEM 3 /* the largest number of words in the block of a dict for each item */

/* Where a container keeps the references to its children. */
typedef enum {
    IN_LIST,
    IN_TUPLE,
    IN_STR_DICT, /* the entries of a dict that has only ever had keys that are exactly str ...
                  */
    IN_DICT,     /* ... and of any other dict */
    IN_VALUES,   /* the array of an instance's attributes */
    IN_ITS_DICT, /* the __dict__ of an instance, which is its only item and the next container
                  */
    IN_SLOTS,    /* the slots of an object, which are no block */
    IN_CONTENTS, /* a static with contents (contents.h), which the Structure has */
} Place;

typedef struct {
    PyObject *object;   /* an address: nothing here is owned */
    PyTypeObject *type; /* held by the Structure or by Python */
    FjNodeKind *kind;   /* of an object, held by the Structure; otherwise NULL */
    Py_ssize_t size;    /* the number of items, of words in the entries of a dict, or of
                         * attributes that are set */
    Place place;
    uint32_t array; /* of an object in slots whose only child is an array leaf, the number of
                     * this leaf + 1; otherwise 0 */
    uint32_t node;  /* IN_CONTENTS: the index of the node */
} Container;

typedef struct {
    FjCapture capture;        /* its object is NULL while there is no snapshot */
    PyObject *candidate;      /* address of the argument of the last call */
    uint32_t streak;          /* how many calls in a row had that object */
    uint32_t required_streak; /* the streak at which a snapshot is taken */
    uint32_t node;            /* index of the argument's node */
    Container *containers;
    PyObject **items;  /* copies of the containers' blocks, one after the other */
    PyObject **arrays; /* addresses of the array leaves, in order */
    Py_ssize_t num_containers, num_items, num_arrays;
} Snapshot;

struct FjMemo {
    Py_ssize_t count; /* of large arguments */
    Snapshot snapshots[FJ_MEMO_ARGUMENTS];
    FjCapture captures[FJ_MEMO_ARGUMENTS]; /* what the last check has found */
};

/* Stands for the block of an empty list, which may have none. */
static PyObject *const no_items[1] = {NULL};

/* The block of a container and its size.  NULL if it has no such block, as an instance that
 * keeps its attributes in a dict has no array of them, and a dict that shares its keys has no
 * entries. */
static inline PyObject *const *
block_of(PyObject *object, Place place, Py_ssize_t *size)
{
    switch (place) {
    case IN_LIST:
        *size = PyList_GET_SIZE(object);
        return *size == 0 ? no_items : ((PyListObject *)object)->ob_item;
    case IN_TUPLE:
        *size = PyTuple_GET_SIZE(object);
        return ((PyTupleObject *)object)->ob_item;
    case IN_VALUES:
        return fj_fields_values(object, size);
    default:
        return fj_compat_dict_entries(object, place == IN_STR_DICT, size);
    }
}

/* Whether getattr reads all attributes of an object in this place, and nowhere else. */
static inline int
keeps_all(FjNodeKind *kind, Place place)
{
    return fj_fields_are_plain(kind) &&
           (place == IN_SLOTS ? kind->in_dict == 0 : fj_fields_are_in_dict(kind));
}

/* ---- checking ---- */

/* The bits in which the slots of an object differ from the copy.  Its child is not compared if
 * that is an array leaf: the array that is there now becomes that leaf. */
static inline uintptr_t
difference_of_slots(const Snapshot *snapshot, const Container *container,
                    PyObject *const *expected)
{
    const Py_ssize_t *offsets = container->kind->offsets;
    const char *object = (const char *)container->object;
    uintptr_t difference = 0;
    Py_ssize_t k = 0;
    if (container->array > 0) {
        PyObject *array = *(PyObject **)(object + offsets[k++]);
        snapshot->arrays[container->array - 1] = array;
        difference = array == NULL;
    }
    for (; k < container->size; k++) {
        difference |= (uintptr_t)*(PyObject **)(object + offsets[k]) ^ (uintptr_t)expected[k];
    }
    return difference;
}

/* The bits in which the references of a container differ from the copy; some bits if it has no
 * block of this size. */
static inline uintptr_t
difference_of(const Snapshot *snapshot, const Container *container, PyObject *const *expected,
              const FjStructure *structure)
{
    PyObject *object = container->object;
    uintptr_t difference = 0;
    if (container->place == IN_SLOTS) {
        return difference_of_slots(snapshot, container, expected);
    }
    if (container->place == IN_CONTENTS) {
        return !fj_structure_is_same(structure, &structure->nodes[container->node]);
    }
    if (container->place == IN_ITS_DICT) {
        FjFieldView view;
        return fj_fields_view(object, &view) == 0 && view.values == NULL
                   ? (uintptr_t)view.dict ^ (uintptr_t)expected[0]
                   : UINTPTR_MAX;
    }
    Py_ssize_t size;
    PyObject *const *items = block_of(object, container->place, &size);
    if (items == NULL || size != container->size) {
        return UINTPTR_MAX;
    }
    for (Py_ssize_t k = 0; k < size; k++) {
        difference |= (uintptr_t)items[k] ^ (uintptr_t)expected[k];
    }
    return difference;
}

static int
is_unchanged(const Snapshot *snapshot, const FjStructure *structure)
{
    PyObject *const *expected = snapshot->items;
    for (Py_ssize_t i = 0; i < snapshot->num_containers; i++) {
        const Container *container = &snapshot->containers[i];
        if (Py_TYPE(container->object) != container->type ||
            (container->kind != NULL && !keeps_all(container->kind, container->place)) ||
            difference_of(snapshot, container, expected, structure) != 0) {
            return 0;
        }
        expected += container->size;
    }
    for (Py_ssize_t i = 0; i < snapshot->num_arrays; i++) {
        if (!fj_registry_is_array_type(structure->registry, Py_TYPE(snapshot->arrays[i]))) {
            return 0;
        }
    }
    return 1;
}

static void
free_snapshot(Snapshot *snapshot)
{
    PyMem_Free(snapshot->containers);
    PyMem_Free(snapshot->items);
    PyMem_Free(snapshot->arrays);
    snapshot->containers = NULL;
    snapshot->items = snapshot->arrays = NULL;
    snapshot->num_containers = snapshot->num_items = snapshot->num_arrays = 0;
    snapshot->capture.object = NULL;
}

/* Drops a snapshot that has failed, and doubles the streak that the next one requires: an
 * argument that keeps changing is not worth one. */
static void
discard_snapshot(Snapshot *snapshot)
{
    free_snapshot(snapshot);
    snapshot->streak = 0;
    snapshot->required_streak = snapshot->required_streak < LONGEST_STREAK
                                    ? snapshot->required_streak * 2
                                    : LONGEST_STREAK;
}

const FjCapture *
fj_memo_check(FjMemo *memo, FjStructure *structure, PyObject *const *arguments,
              Py_ssize_t *count)
{
    *count = 0;
    for (Py_ssize_t i = 0; i < memo->count; i++) {
        Snapshot *snapshot = &memo->snapshots[i];
        if (snapshot->capture.object == NULL ||
            snapshot->capture.object != arguments[snapshot->capture.parameter]) {
            continue;
        }
        if (FJ_LIKELY(is_unchanged(snapshot, structure))) {
            memo->captures[(*count)++] = snapshot->capture;
        }
        else { /* it has changed, or is another object at the same address */
            discard_snapshot(snapshot);
        }
    }
    return memo->captures;
}

/* ---- taking a snapshot ---- */

typedef struct {
    Snapshot *snapshot;
    FjStructure *structure;
    const FjNode *next;
} Walk;

static int snapshot_node(Walk *w, PyObject *object);

/* Adds a container with the addresses in its block.  There is room: see take_snapshot. */
static void
add_container(Snapshot *snapshot, PyObject *object, Place place, PyObject *const *items,
              Py_ssize_t size)
{
    snapshot->containers[snapshot->num_containers++] =
        (Container){.object = object, .type = Py_TYPE(object), .size = size, .place = place};
    memcpy(snapshot->items + snapshot->num_items, items, (size_t)size * sizeof(PyObject *));
    snapshot->num_items += size;
}

static int
snapshot_items(Walk *w, const FjNode *node, PyObject *object, Place place)
{
    Py_ssize_t size = 0;
    PyObject *const *items = block_of(object, place, &size);
    if (size != (Py_ssize_t)node->arity) {
        return 0;
    }
    add_container(w->snapshot, object, place, items, size);
    for (Py_ssize_t i = 0; i < size; i++) {
        if (!snapshot_node(w, items[i])) {
            return 0;
        }
    }
    return 1;
}

/* The `count` values of a dict by these keys.  Each key of the dict has to be the very object
 * that the Structure holds, in `keys`. */
static int
snapshot_dict(Walk *w, PyObject *keys, uint32_t count, PyObject *dict)
{
    Py_ssize_t size = 0, position = 0;
    PyObject *const *entries = NULL;
    Place place = IN_STR_DICT;
    if (PyDict_CheckExact(dict) && (entries = block_of(dict, place, &size)) == NULL) {
        entries = block_of(dict, place = IN_DICT, &size);
    }
    if (entries == NULL || size > DICT_ITEM * (Py_ssize_t)count ||
        PyDict_GET_SIZE(dict) != (Py_ssize_t)count) {
        return 0; /* or items were deleted */
    }
    add_container(w->snapshot, dict, place, entries, size);
    for (uint32_t i = 0; i < count; i++) {
        PyObject *wanted = PyTuple_GET_ITEM(keys, i), *key, *value;
        if (!fj_compat_dict_next(dict, &position, &key, &value) || key != wanted) {
            value = fj_compat_dict_find_object(dict, wanted, FAR, &position);
        }
        if (value == NULL || !snapshot_node(w, value)) {
            return 0;
        }
    }
    return 1;
}

/* A Module, or an object whose fields are in its __dict__. */
static int
snapshot_attributes(Walk *w, const FjNode *node, PyObject *object)
{
    FjFieldView view;
    FjNodeKind *kind = fj_node_kind(node);
    if (fj_fields_view(object, &view) < 0) {
        PyErr_Clear();
        return 0;
    }
    if ((node->flags & FJ_NODE_WRAPPER) || view.used != (Py_ssize_t)node->arity) {
        return 0;
    }
    int has_dict = view.values == NULL;
    add_container(w->snapshot, object, has_dict ? IN_ITS_DICT : IN_VALUES,
                  has_dict ? &view.dict : view.values, has_dict ? 1 : view.used);
    w->snapshot->containers[w->snapshot->num_containers - 1].kind =
        node->code == FJ_OBJECT ? kind : NULL;
    if (has_dict) {
        return view.dict != NULL && snapshot_dict(w, kind->names, node->arity, view.dict);
    }
    for (uint32_t i = 0; i < node->arity; i++) {
        PyObject *value = fj_fields_peek(&view, kind, i);
        /* All fields are set and nothing else is, so if each stands among the first `used`
         * values, the copy has them all. */
        if (value == NULL || kind->places[i] >= view.used || !snapshot_node(w, value)) {
            return 0;
        }
    }
    return 1;
}

static int
snapshot_object(Walk *w, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view = {.python_free = 1};
    if (keeps_all(kind, IN_ITS_DICT) && node->arity > 0) {
        return snapshot_attributes(w, node, object);
    }
    if (!keeps_all(kind, IN_SLOTS)) {
        return 0;
    }
    w->snapshot->containers[w->snapshot->num_containers++] =
        (Container){.object = object,
                    .type = Py_TYPE(object),
                    .kind = kind,
                    .size = node->arity,
                    .place = IN_SLOTS};
    Container *container = &w->snapshot->containers[w->snapshot->num_containers - 1];
    PyObject **items = w->snapshot->items + w->snapshot->num_items;
    w->snapshot->num_items += node->arity;
    for (uint32_t i = 0; i < node->arity; i++) {
        items[i] = fj_fields_peek_object(object, &view, kind, i);
        if (i == 0 && kind->dynamic == 1 && w->next->code == FJ_ARRAY) {
            container->array = (uint32_t)w->snapshot->num_arrays + 1;
        }
        if (items[i] == NULL || !snapshot_node(w, items[i])) {
            return 0;
        }
    }
    return 1;
}

static int
snapshot_static(Walk *w, const FjNode *node, PyObject *object)
{
    PyObject *value = fj_structure_value(node);
    if (object == value && !(node->flags & FJ_NODE_SELF_EQUAL) &&
        fj_structure_is_same(w->structure, node)) {
        add_container(w->snapshot, object, IN_CONTENTS, no_items, 0);
        w->snapshot->containers[w->snapshot->num_containers - 1].node =
            (uint32_t)(node - w->structure->nodes);
        return 1;
    }
    return object == value && (node->flags & FJ_NODE_SELF_EQUAL);
}

/* 1, or 0 if the object does not match the node or is not fit for a snapshot. */
static int
snapshot_of(Walk *w, const FjNode *node, PyObject *object)
{
    switch (node->code) {
    case FJ_ARRAY:
        w->snapshot->arrays[w->snapshot->num_arrays++] = object;
        return fj_registry_is_array_type(w->structure->registry, Py_TYPE(object));
    case FJ_STATIC:
        return snapshot_static(w, node, object);
    case FJ_CUSTOM:
        return (node->flags & FJ_NODE_ITSELF) && snapshot_static(w, node, object);
    case FJ_NONE:
        return object == Py_None;
    case FJ_REF:
        return 1;
    case FJ_TUPLE:
        if (object == node->aux) {
            w->next = fj_structure_skip(w->structure, node);
            return 1;
        }
        return PyTuple_CheckExact(object) && snapshot_items(w, node, object, IN_TUPLE);
    case FJ_LIST:
        return PyList_CheckExact(object) && snapshot_items(w, node, object, IN_LIST);
    case FJ_NAMEDTUPLE:
        return Py_TYPE(object) == fj_structure_info(w->structure, node)->type &&
               snapshot_items(w, node, object, IN_TUPLE);
    case FJ_MODULE:
        return Py_TYPE(object) == fj_structure_info(w->structure, node)->type &&
               snapshot_attributes(w, node, object);
    case FJ_OBJECT:
        return Py_TYPE(object) == fj_structure_info(w->structure, node)->type &&
               snapshot_object(w, node, object);
    case FJ_DICT:
        return snapshot_dict(w, node->aux, node->arity, object);
    default:
        return 0;
    }
}

static int
snapshot_node(Walk *w, PyObject *object)
{
    const FjNode *node = w->next++;
    if (FJ_LIKELY(!(node->flags & FJ_NODE_DEEP))) {
        return snapshot_of(w, node, object);
    }
    if (Py_EnterRecursiveCall(" while taking a snapshot")) {
        PyErr_Clear();
        return 0;
    }
    int result = snapshot_of(w, node, object);
    Py_LeaveRecursiveCall();
    return result;
}

/* Gives the memo the first arguments that are large enough; the largest one if none is. */
static void
choose_arguments(FjMemo *memo, const FjStructure *structure)
{
    uint32_t node = 1, largest = 0;
    for (uint32_t i = 0; i < structure->nodes[0].arity && memo->count < FJ_MEMO_ARGUMENTS;
         i++) {
        uint32_t end = structure->info[node].subtree_end, size = end - node;
        int is_large = size >= FJ_MEMO_MIN_NODES;
        if (is_large || (memo->count == 0 && size > largest)) {
            memo->snapshots[memo->count].capture.parameter = i;
            memo->snapshots[memo->count].node = node;
            memo->snapshots[memo->count].required_streak = 2;
            memo->count += is_large;
            largest = size;
        }
        node = end;
    }
    memo->count += memo->count == 0 && largest > 0;
}

static void
take_snapshot(Snapshot *snapshot, FjStructure *structure, PyObject *object)
{
    uint32_t end = structure->info[snapshot->node].subtree_end;
    /* Each node is an item of one block at most.  The keys of dicts are items too, and the
     * attributes of a container may be in a dict. */
    size_t items = end - snapshot->node, containers = 0, arrays = 0;
    for (uint32_t i = snapshot->node; i < end; i++) {
        const FjNode *node = &structure->nodes[i];
        int has_dict =
            node->code == FJ_DICT || node->code == FJ_MODULE || node->code == FJ_OBJECT;
        items += has_dict ? DICT_ITEM * node->arity + 1 : 0;
        containers += (structure->info[i].contents != NULL) + (node->code > FJ_NONE) +
                      (node->code == FJ_MODULE || node->code == FJ_OBJECT);
        arrays += node->code == FJ_ARRAY;
    }
    snapshot->containers = PyMem_Calloc(containers, sizeof(Container));
    snapshot->items = PyMem_Calloc(items, sizeof(PyObject *));
    snapshot->arrays = PyMem_Calloc(arrays, sizeof(PyObject *));
    Walk w = {.snapshot = snapshot,
              .structure = structure,
              .next = structure->nodes + snapshot->node};
    if (snapshot->containers == NULL || snapshot->items == NULL || snapshot->arrays == NULL ||
        !snapshot_node(&w, object)) {
        discard_snapshot(snapshot);
        return;
    }
    snapshot->capture.object = object;
    snapshot->capture.arrays = snapshot->arrays;
    snapshot->capture.count = snapshot->num_arrays;
    snapshot->capture.number = ++structure->registry->num_snapshots;
}

void
fj_memo_update(FjMemo **memo_place, FjStructure *structure, PyObject *const *arguments)
{
    FjMemo *memo = *memo_place;
    if (fj_structure_runs_python(structure)) {
        return;
    }
    if (memo == NULL) {
        memo = *memo_place = PyMem_Calloc(1, sizeof(FjMemo));
        if (memo == NULL) {
            return;
        }
        choose_arguments(memo, structure);
    }
    for (Py_ssize_t i = 0; i < memo->count; i++) {
        Snapshot *snapshot = &memo->snapshots[i];
        PyObject *object = arguments[snapshot->capture.parameter];
        if (snapshot->capture.object != NULL || object == NULL) {
            continue;
        }
        snapshot->streak = object == snapshot->candidate ? snapshot->streak + 1 : 1;
        snapshot->candidate = object;
        if (snapshot->streak >= snapshot->required_streak) {
            take_snapshot(snapshot, structure, object);
        }
    }
}

int
fj_memo_is_full(const FjMemo *memo, Py_ssize_t count)
{
    return memo != NULL && memo->count == count;
}

void
fj_memo_free(FjMemo *memo)
{
    for (Py_ssize_t i = 0; memo != NULL && i < memo->count; i++) {
        free_snapshot(&memo->snapshots[i]);
    }
    PyMem_Free(memo);
}
