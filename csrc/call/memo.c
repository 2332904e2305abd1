/* What a large argument looked like, as addresses.
 *
 * A serving loop passes the same model again and again.  The walk looks at each of its nodes;
 * but a container is as it was when its block of references is: then each child is the very
 * object of the last time.  So the memo has, for each container, parent before child, its
 * address and a copy of its block: a Module's values, the items of a list or a tuple.
 *
 * It holds no reference: a dropped model is freed at once.  It is exact all the same:
 *
 * - The root is compared with the argument, which the caller holds.  A container is looked at
 *   only when the block of its parent has been found unchanged, so its address is held by that
 *   parent at this moment.  What lies at the address may be another object than it was; its
 *   type and its block tell, and that is all that a walk would look at.
 * - Static leaves are remembered only where they are the very objects that the Structure
 *   holds, so that no other can have got their address, and only inert ones: statics.h.
 * - Arrays may be others than they were: their types are looked at, and what is there is
 * passed.
 *
 * Only Modules, lists, tuples and named tuples are remembered; an argument with anything else
 * in it is walked.  No Python code runs in here, so nothing changes meanwhile.
 */
#include "call/memo.h"

#include "structure/fields.h"

#define LONGEST_WAIT 64 /* calls with the same argument before it is tried again */

typedef struct {
    PyObject *object;   /* an address */
    PyTypeObject *type; /* the Structure, or Python, holds it */
    Py_ssize_t size;    /* of a list or tuple; how many attributes are set in a Module */
} Block;

struct FjMemo {
    FjCapture known;     /* its object is NULL when nothing is remembered */
    PyObject *candidate; /* the address of the large argument of the last call */
    uint32_t streak;     /* how many calls in a row it was that */
    uint32_t wait;       /* how many it takes to be remembered */
    uint32_t node;       /* of the large argument */
    Block *blocks;
    PyObject **words;  /* the blocks' contents, one after the other */
    PyObject **arrays; /* addresses, in order */
    Py_ssize_t num_blocks, num_words, num_arrays;
};

/* Stands for the block of a list that has none, being empty. */
static PyObject *const no_items[1] = {NULL};

/* The block of a container: its references and how many there are.  NULL for a Module that
 * keeps its values elsewhere. */
static inline PyObject *const *
block_of(PyObject *object, PyTypeObject *type, Py_ssize_t *size)
{
    if (type == &PyList_Type) {
        *size = PyList_GET_SIZE(object);
        return *size == 0 ? no_items : ((PyListObject *)object)->ob_item;
    }
    if (PyType_HasFeature(type, Py_TPFLAGS_TUPLE_SUBCLASS)) {
        *size = PyTuple_GET_SIZE(object);
        return ((PyTupleObject *)object)->ob_item;
    }
    return fj_fields_values(object, size);
}

/* ---- checking ---- */

static int
is_unchanged(const FjMemo *memo, PyTypeObject *array_type)
{
    PyObject *const *expected = memo->words;
    for (Py_ssize_t i = 0; i < memo->num_blocks; i++) {
        const Block *block = &memo->blocks[i];
        Py_ssize_t size;
        if (Py_TYPE(block->object) != block->type) {
            return 0;
        }
        PyObject *const *items = block_of(block->object, block->type, &size);
        if (items == NULL || size != block->size) {
            return 0;
        }
        uintptr_t difference = 0;
        for (Py_ssize_t k = 0; k < size; k++) {
            difference |= (uintptr_t)items[k] ^ (uintptr_t)expected[k];
        }
        if (difference != 0) {
            return 0;
        }
        expected += size;
    }
    for (Py_ssize_t i = 0; i < memo->num_arrays; i++) {
        if (Py_TYPE(memo->arrays[i]) != array_type) {
            return 0;
        }
    }
    return 1;
}

static void
release(FjMemo *memo)
{
    PyMem_Free(memo->blocks);
    PyMem_Free(memo->words);
    PyMem_Free(memo->arrays);
    memo->blocks = NULL;
    memo->words = memo->arrays = NULL;
    memo->num_blocks = memo->num_words = memo->num_arrays = 0;
    memo->known.object = NULL;
}

/* Each time it takes longer until another try is made. */
static void
forget(FjMemo *memo)
{
    release(memo);
    memo->streak = 0;
    memo->wait = memo->wait < LONGEST_WAIT ? memo->wait * 2 : LONGEST_WAIT;
}

const FjCapture *
fj_memo_check(FjMemo *memo, FjStructure *structure, PyObject *const *arguments)
{
    if (memo->known.object == NULL || memo->known.object != arguments[memo->known.parameter]) {
        return NULL;
    }
    if (FJ_LIKELY(is_unchanged(memo, structure->registry->array_type))) {
        return &memo->known;
    }
    forget(memo); /* it changes, or others come to its address */
    return NULL;
}

/* ---- learning ---- */

typedef struct {
    FjMemo *memo;
    FjStructure *structure;
    const FjNode *next;
} Learn;

static int learn_node(Learn *l, PyObject *object);

/* There is room: see learn. */
static void
add_block(FjMemo *memo, PyObject *object, PyObject *const *items, Py_ssize_t size)
{
    memo->blocks[memo->num_blocks++] = (Block){object, Py_TYPE(object), size};
    memcpy(memo->words + memo->num_words, items, (size_t)size * sizeof(PyObject *));
    memo->num_words += size;
}

static int
learn_items(Learn *l, const FjNode *node, PyObject *object)
{
    Py_ssize_t size = 0;
    PyObject *const *items = block_of(object, Py_TYPE(object), &size);
    if (items == NULL || size != (Py_ssize_t)node->arity) {
        return 0;
    }
    add_block(l->memo, object, items, size);
    for (Py_ssize_t i = 0; i < size; i++) {
        if (!learn_node(l, items[i])) {
            return 0;
        }
    }
    return 1;
}

static int
learn_module(Learn *l, const FjNode *node, PyObject *object)
{
    FjFieldView view;
    FjNodeKind *kind = fj_node_kind(node);
    if (fj_fields_view(object, &view) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (view.values == NULL || (node->flags & FJ_NODE_WRAPPER) ||
        view.used != (Py_ssize_t)node->arity) {
        return 0;
    }
    add_block(l->memo, object, view.values, view.used);
    for (uint32_t i = 0; i < node->arity; i++) {
        PyObject *value = fj_fields_peek(&view, kind, i);
        /* The fields must be the first among the values, so that the block has them all. */
        if (value == NULL || kind->places[i] >= view.used || !learn_node(l, value)) {
            return 0;
        }
    }
    return 1;
}

/* 1, or 0 where the object is not what the node says, or cannot be remembered. */
static int
learn_node(Learn *l, PyObject *object)
{
    const FjNode *node = l->next++;
    switch (node->code) {
    case FJ_ARRAY:
        l->memo->arrays[l->memo->num_arrays++] = object;
        return Py_TYPE(object) == l->structure->registry->array_type;
    case FJ_STATIC:
        return object == node->aux && (node->flags & FJ_NODE_INERT);
    case FJ_NONE:
        return object == Py_None;
    case FJ_TUPLE:
        if (object == node->aux) {
            l->next = fj_structure_skip(l->structure, node);
            return 1;
        }
        return PyTuple_CheckExact(object) && learn_items(l, node, object);
    case FJ_LIST:
        return PyList_CheckExact(object) && learn_items(l, node, object);
    case FJ_NAMEDTUPLE:
        return Py_TYPE(object) == fj_structure_info(l->structure, node)->type &&
               learn_items(l, node, object);
    case FJ_MODULE:
        return Py_TYPE(object) == fj_structure_info(l->structure, node)->type &&
               learn_module(l, node, object);
    default:
        return 0;
    }
}

/* The argument with the most nodes. */
static uint32_t
find_largest(const FjStructure *structure, Py_ssize_t *parameter)
{
    uint32_t largest = 0, size = 0, node = 1;
    for (uint32_t i = 0; i < structure->nodes[0].arity; i++) {
        uint32_t end = structure->info[node].subtree_end;
        if (end - node > size) {
            largest = node;
            size = end - node;
            *parameter = i;
        }
        node = end;
    }
    return largest;
}

static FjMemo *
new_memo(const FjStructure *structure)
{
    FjMemo *memo = PyMem_Calloc(1, sizeof(FjMemo));
    if (memo != NULL) {
        memo->node = find_largest(structure, &memo->known.parameter);
        memo->wait = 2;
    }
    return memo;
}

static void
learn(FjMemo *memo, FjStructure *structure, PyObject *object)
{
    uint32_t end = structure->info[memo->node].subtree_end;
    size_t words = end - memo->node, containers = 0, arrays = 0; /* a node is a word at most */
    for (uint32_t i = memo->node; i < end; i++) {
        containers += structure->nodes[i].code > FJ_NONE;
        arrays += structure->nodes[i].code == FJ_ARRAY;
    }
    memo->blocks = PyMem_Calloc(containers, sizeof(Block));
    memo->words = PyMem_Calloc(words, sizeof(PyObject *));
    memo->arrays = PyMem_Calloc(arrays, sizeof(PyObject *));
    Learn l = {memo, structure, structure->nodes + memo->node};
    if (memo->blocks == NULL || memo->words == NULL || memo->arrays == NULL ||
        !learn_node(&l, object)) {
        forget(memo);
        return;
    }
    memo->known.object = object;
    memo->known.arrays = memo->arrays;
    memo->known.count = memo->num_arrays;
}

void
fj_memo_learn(FjMemo **memo_place, FjStructure *structure, PyObject *const *arguments)
{
    FjMemo *memo = *memo_place;
    if (structure->may_run_python ||
        (memo == NULL && (memo = *memo_place = new_memo(structure)) == NULL)) {
        return;
    }
    PyObject *object = arguments[memo->known.parameter];
    if (memo->known.object != NULL || object == NULL) {
        return;
    }
    memo->streak = object == memo->candidate ? memo->streak + 1 : 1;
    memo->candidate = object;
    if (memo->streak >= memo->wait) {
        learn(memo, structure, object);
    }
}

void
fj_memo_free(FjMemo *memo)
{
    if (memo != NULL) {
        release(memo);
        PyMem_Free(memo);
    }
}
