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
 * snapshot in each check.  The same goes for None, and for a tuple of nothing but such values
 * that the Structure holds as a whole.  The keys of a dict stand for themselves in the same
 * way: each is the very object that the Structure holds, a str or an int.
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
#include "walk/known_record.h"

#define LONGEST_STREAK 64

struct FjKnownArguments {
    Py_ssize_t count; /* of large arguments */
    FjKnownArgument arguments[FJ_KNOWN_ARGUMENTS];
    FjKnownVector distinct; /* addresses of the numbered objects of the last call, which are
                             * distinct */
};

static void
free_vector(FjKnownVector *vector)
{
    PyMem_Free(vector->items);
    *vector = (FjKnownVector){.items = NULL};
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
        fj_known_append_addresses(&known->distinct, objects, count);
    }
    return distinct;
}

/* ---- checking ---- */

/* The bits in which the slots of an object differ from the copy.  Its child is not compared if
 * that is an array leaf: the array that is there now becomes that leaf. */
static inline uintptr_t
difference_of_slots(const FjKnownArgument *argument, const FjKnownContainer *container,
                    PyObject *const *expected)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what is in slots has a kind. */
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
difference_of(const FjKnownArgument *argument, const FjKnownContainer *container,
              PyObject *const *expected, const FjStructure *structure)
{
    PyObject *object = container->object;
    uintptr_t difference = 0;
    if (container->place == FJ_IN_SLOTS) {
        return difference_of_slots(argument, container, expected);
    }
    if (container->place == FJ_IN_SNAPSHOT) {
        return fj_structure_match(structure, &structure->nodes[container->node], object) <= 0;
    }
    if (container->place == FJ_IN_ITS_DICT) {
        FjFieldView view;
        return fj_fields_view(object, &view) == 0 && view.values == NULL
                   ? (uintptr_t)view.dict ^ (uintptr_t)expected[0]
                   : UINTPTR_MAX;
    }
    Py_ssize_t size;
    PyObject *const *items = fj_known_block(object, container->place, &size);
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
    const FjKnownContainer *containers = argument->containers.items;
    for (Py_ssize_t i = 0; i < argument->containers.count; i++) {
        const FjKnownContainer *container = &containers[i];
        if (Py_TYPE(container->object) != container->type ||
            (container->kind != NULL &&
             !fj_known_keeps_all(container->kind, container->place)) ||
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
    const FjKnownRef *refs = argument->refs.items;
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

/* ---- recording: known_record.c adds the containers ---- */

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
        !fj_known_append_addresses(&argument->arrays, arrays, num_arrays) ||
        !fj_known_append_addresses(&argument->objects, objects, num_objects)) {
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
