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
 *    (FJ_NODE_INERT), so it cannot change, or has contents (contents.h): then a check compares
 *    them.  The same goes for None, and for a tuple of nothing but such values that the
 *    Structure holds as a whole.  The keys of a dict stand for themselves in the same way:
 *    each is the very object that the Structure holds, a str or an int.
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

/* An object that occurs again. */
typedef struct {
    PyObject *object;
    uint32_t number;
} Ref;

/* An array that grows. */
typedef struct {
    void *items;
    Py_ssize_t count, capacity;
} Vector;

struct FjKnownArgument {
    PyObject *object;         /* the address of the argument; NULL while nothing is known */
    PyObject *candidate;      /* the address of the argument of the last call */
    uint32_t parameter;       /* its index */
    uint32_t streak;          /* how many calls in a row had the candidate */
    uint32_t required_streak; /* the streak at which it is recorded */
    int failed;               /* there is no record of something in it */
    Vector containers;        /* of Container */
    Vector items;             /* addresses: copies of the containers' blocks in a row */
    Vector arrays;            /* addresses of the array leaves, in order */
    Vector objects;           /* addresses of the numbered objects, in order */
    Vector refs;              /* of Ref */
};

struct FjKnownArguments {
    Py_ssize_t count; /* of large arguments */
    FjKnownArgument arguments[FJ_KNOWN_ARGUMENTS];
    Vector distinct; /* the addresses of the numbered objects of the last call, all distinct */
};

/* Stands for the block of an empty list, which may have none. */
static PyObject *const no_items[1] = {NULL};

/* Appends `count` items of this size: the first of them; NULL if there is no memory. */
static void *
append(Vector *vector, Py_ssize_t count, size_t size)
{
    if (vector->capacity - vector->count < count) {
        Py_ssize_t capacity = Py_MAX(2 * vector->capacity, vector->count + count);
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

static int
append_addresses(Vector *vector, PyObject *const *addresses, Py_ssize_t count)
{
    PyObject **place = count == 0 ? NULL : append(vector, count, sizeof(PyObject *));
    if (place != NULL) {
        memcpy(place, addresses, (size_t)count * sizeof(PyObject *));
    }
    return count == 0 || place != NULL;
}

static void
free_vector(Vector *vector)
{
    PyMem_Free(vector->items);
    *vector = (Vector){.items = NULL};
}

static void
forget(FjKnownArgument *argument)
{
    free_vector(&argument->containers);
    free_vector(&argument->items);
    free_vector(&argument->arrays);
    free_vector(&argument->objects);
    free_vector(&argument->refs);
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
        (structure->count < FJ_KNOWN_MIN_NODES || fj_structure_runs_python(structure))) {
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
        free_vector(&known->distinct);
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
        append_addresses(&known->distinct, objects, count);
    }
    return distinct;
}

/* ---- checking ---- */

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

/* The bits in which the slots of an object differ from the copy.  Its child is not compared if
 * that is an array leaf: the array that is there now becomes that leaf. */
static inline uintptr_t
difference_of_slots(const FjKnownArgument *argument, const Container *container,
                    PyObject *const *expected)
{
    const Py_ssize_t *offsets = container->kind->offsets;
    const char *object = (const char *)container->object;
    uintptr_t difference = 0;
    Py_ssize_t k = 0;
    if (container->array > 0) {
        PyObject *array = *(PyObject **)(object + offsets[k++]);
        ((PyObject **)argument->arrays.items)[container->array - 1] = array;
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
difference_of(const FjKnownArgument *argument, const Container *container,
              PyObject *const *expected, const FjStructure *structure)
{
    PyObject *object = container->object;
    uintptr_t difference = 0;
    if (container->place == IN_SLOTS) {
        return difference_of_slots(argument, container, expected);
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
is_unchanged(const FjKnownArgument *argument, const FjStructure *structure)
{
    PyObject *const *expected = argument->items.items, *const *arrays = argument->arrays.items;
    const Container *containers = argument->containers.items;
    for (Py_ssize_t i = 0; i < argument->containers.count; i++) {
        const Container *container = &containers[i];
        if (Py_TYPE(container->object) != container->type ||
            (container->kind != NULL && !keeps_all(container->kind, container->place)) ||
            difference_of(argument, container, expected, structure) != 0) {
            return 0;
        }
        expected += container->size;
    }
    for (Py_ssize_t i = 0; i < argument->arrays.count; i++) {
        if (!fj_registry_is_array_type(structure->registry, Py_TYPE(arrays[i]))) {
            return 0;
        }
    }
    return 1;
}

int
fj_known_check(FjKnownArgument *argument, const FjStructure *structure, PyObject *object)
{
    if (argument->object == NULL || argument->object != object) {
        return 0;
    }
    if (FJ_LIKELY(is_unchanged(argument, structure))) {
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
    argument->failed = 0;
    return 1;
}

void
fj_known_end(FjKnownArgument *argument, int matched, PyObject *object, PyObject *const *arrays,
             Py_ssize_t num_arrays, PyObject *const *objects, Py_ssize_t num_objects)
{
    if (!matched || argument->failed ||
        !append_addresses(&argument->arrays, arrays, num_arrays) ||
        !append_addresses(&argument->objects, objects, num_objects)) {
        give_up(argument);
        return;
    }
    argument->object = object;
}

void
fj_known_fail(FjKnownArgument *argument)
{
    argument->failed = 1;
}

/* Adds a container with the addresses in its block; NULL if there is none, or no memory. */
static Container *
add(FjKnownArgument *argument, PyObject *object, Place place, PyObject *const *items,
    Py_ssize_t size)
{
    Container *container = items == NULL || !append_addresses(&argument->items, items, size)
                               ? NULL
                               : append(&argument->containers, 1, sizeof(Container));
    if (container == NULL) {
        argument->failed = 1;
        return NULL;
    }
    *container =
        (Container){.object = object, .type = Py_TYPE(object), .size = size, .place = place};
    return container;
}

static void
add_items(FjKnownArgument *argument, PyObject *object, Place place)
{
    Py_ssize_t size;
    PyObject *const *items = block_of(object, place, &size);
    add(argument, object, place, items, size);
}

/* Whether the first `count` keys are, as these very objects, keys of the dict. */
static int
has_keys(PyObject *dict, PyObject *keys, uint32_t count)
{
    Py_ssize_t position = 0;
    for (uint32_t i = 0; i < count; i++) {
        PyObject *wanted = PyTuple_GET_ITEM(keys, i), *key, *value;
        if ((!fj_compat_dict_next(dict, &position, &key, &value) || key != wanted) &&
            fj_compat_dict_find_object(dict, wanted, FAR, &position) == NULL) {
            return 0;
        }
    }
    return 1;
}

/* Adds a dict with these keys. */
static void
add_dict(FjKnownArgument *argument, PyObject *keys, uint32_t count, PyObject *dict)
{
    Py_ssize_t size = 0;
    PyObject *const *entries = NULL;
    Place place = IN_STR_DICT;
    if (PyDict_CheckExact(dict) && PyDict_GET_SIZE(dict) == (Py_ssize_t)count &&
        has_keys(dict, keys, count) && (entries = block_of(dict, place, &size)) == NULL) {
        entries = block_of(dict, place = IN_DICT, &size);
    }
    if (size > DICT_ITEM * (Py_ssize_t)count) { /* items were deleted */
        entries = NULL;
    }
    add(argument, dict, place, entries, size);
}

/* Whether all fields stand among the first `used` values.  If there are as many attributes as
 * fields, the values have nothing else. */
static int
has_all(const FjFieldView *view, FjNodeKind *kind)
{
    for (Py_ssize_t i = 0; i < fj_node_kind_fields(kind); i++) {
        if (fj_fields_peek(view, kind, i) == NULL || kind->places[i] >= view->used) {
            return 0;
        }
    }
    return 1;
}

/* Adds a Module, or an object whose fields are in its __dict__. */
static void
add_fields(FjKnownArgument *argument, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    Container *container = NULL;
    if (fj_fields_view(object, &view) < 0) {
        PyErr_Clear();
    }
    else if (view.used != fj_node_kind_fields(kind) || view.used != node->arity) {
        /* It is a wrapper, or has other attributes. */
    }
    else if (view.values != NULL && has_all(&view, kind)) {
        container = add(argument, object, IN_VALUES, view.values, view.used);
    }
    else if (view.values == NULL && view.dict != NULL) {
        container = add(argument, object, IN_ITS_DICT, &view.dict, 1);
    }
    if (container == NULL) {
        argument->failed = 1;
        return;
    }
    container->kind = node->code == FJ_OBJECT ? kind : NULL;
    if (view.values == NULL) {
        add_dict(argument, kind->names, node->arity, view.dict);
    }
}

/* Adds an object whose fields are in slots. */
static void
add_slots(FjKnownArgument *argument, const FjNode *node, PyObject *object,
          Py_ssize_t num_arrays)
{
    FjNodeKind *kind = fj_node_kind(node);
    PyObject *room[FJ_FIELDS_INLINE];
    if (node->arity > FJ_FIELDS_INLINE) {
        argument->failed = 1;
        return;
    }
    for (uint32_t i = 0; i < node->arity; i++) {
        room[i] = *(PyObject **)((char *)object + kind->offsets[i]);
        argument->failed |= room[i] == NULL;
    }
    Container *container = add(argument, object, IN_SLOTS, room, node->arity);
    if (container != NULL) {
        container->kind = kind;
        if (kind->dynamic == 1 && node[1].code == FJ_ARRAY) {
            container->array = (uint32_t)num_arrays + 1;
        }
    }
}

static void
add_object(FjKnownArgument *argument, const FjNode *node, PyObject *object,
           Py_ssize_t num_arrays)
{
    FjNodeKind *kind = fj_node_kind(node);
    if (keeps_all(kind, IN_SLOTS)) {
        add_slots(argument, node, object, num_arrays);
    }
    else if (keeps_all(kind, IN_VALUES)) {
        add_fields(argument, node, object);
    }
    else {
        argument->failed = 1;
    }
}

void
fj_known_add(FjKnownArgument *argument, const FjStructure *structure, const FjNode *node,
             PyObject *object, Py_ssize_t num_arrays)
{
    const PyTypeObject *type = fj_structure_info(structure, node)->type;
    if (argument->failed || (type != NULL && Py_TYPE(object) != type)) {
        argument->failed = 1;
        return;
    }
    switch (node->code) {
    case FJ_LIST:
        PyList_CheckExact(object) ? add_items(argument, object, IN_LIST)
                                  : fj_known_fail(argument);
        break;
    case FJ_TUPLE: /* one that never changes is known by its address */
        if (object != node->aux) {
            PyTuple_CheckExact(object) ? add_items(argument, object, IN_TUPLE)
                                       : fj_known_fail(argument);
        }
        break;
    case FJ_NAMEDTUPLE:
        add_items(argument, object, IN_TUPLE);
        break;
    case FJ_MODULE:
        add_fields(argument, node, object);
        break;
    case FJ_OBJECT:
        add_object(argument, node, object, num_arrays);
        break;
    case FJ_DICT:
        add_dict(argument, node->aux, node->arity, object);
        break;
    case FJ_CUSTOM: /* a static: see fj_known_add_contents */
        argument->failed = !(node->flags & FJ_NODE_ITSELF);
        break;
    default:
        argument->failed = 1;
    }
}

void
fj_known_add_contents(FjKnownArgument *argument, const FjStructure *structure,
                      const FjNode *node)
{
    Container *container =
        argument->failed ? NULL
                         : add(argument, fj_structure_value(node), IN_CONTENTS, no_items, 0);
    if (container != NULL) {
        container->node = (uint32_t)(node - structure->nodes);
    }
}

void
fj_known_add_ref(FjKnownArgument *argument, PyObject *object, uint32_t number)
{
    Ref *ref = argument->failed ? NULL : append(&argument->refs, 1, sizeof(Ref));
    if (ref == NULL) {
        argument->failed = 1;
        return;
    }
    *ref = (Ref){object, number};
}
