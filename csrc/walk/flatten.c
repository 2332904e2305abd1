/* The walk of a cache miss, and of all tree functions: flattens a tree of any structure.
 *
 * It asks the registry for the kind of each type, and appends nodes to a new Structure.
 * fj_flatten_up_to and fj_flatten_compare compare the tree with an existing Structure instead
 * (expected.h).
 *
 * Each container kind has a reader, which defines its traversal (reader.h).
 *
 * Python code can run nearly anywhere in this file: in `classify` and `is_array` for new types
 * and some instances, in the caller's `is_leaf` and `choose`, in expected.c and the readers,
 * and in finalizers.  So the walk holds a strong reference to each object while walking it,
 * and rechecks sizes after each child.  It refers to nodes by index: the array moves. */
#include "walk/flatten.h"

#include "structure/statics.h"
#include "walk/reader.h"

static int
add_array(FjFlattener *f, PyObject *object)
{
    FjNode *node = fj_structure_add(f->structure, FJ_ARRAY, NULL);
    if (node == NULL) {
        return -1;
    }
    node->flags |= (uint16_t)f->array_flags;
    f->structure->all_leaves++;
    f->structure->open_leaves++;
    return fj_leafbuf_push(f->arrays, object);
}

static FJ_NOINLINE int
add_mutable_static(FjFlattener *f, PyObject *object, int flag)
{
    int is_asked = flag == FJ_NODE_MAYBE_ARRAY;
    int immutable = is_asked ? 0 : fj_static_is_immutable(fj_flatten_registry(f), object);
    FjNode *node = immutable < 0 ? NULL : fj_structure_add(f->structure, FJ_STATIC, object);
    if (node == NULL) {
        return -1;
    }
    node->flags = (uint16_t)(flag | (immutable ? FJ_NODE_SELF_EQUAL : 0));
    f->structure->may_run_python |= is_asked;
    return 0;
}

/* Adds a non-array.  `flag` is FJ_NODE_FIELD for a static field, FJ_NODE_MAYBE_ARRAY for a
 * leaf that `is_array` rejected, FJ_NODE_ARGUMENT for a static argument, or 0 for any other
 * leaf. */
static int
add_static(FjFlattener *f, PyObject *object, int flag)
{
    if (FJ_UNLIKELY(flag == FJ_NODE_MAYBE_ARRAY ||
                    !fj_static_is_inert(fj_flatten_registry(f), object))) {
        return add_mutable_static(f, object, flag);
    }
    FjNode *node = fj_structure_add(f->structure, FJ_STATIC, object);
    if (node == NULL) {
        return -1;
    }
    node->flags = (uint16_t)(flag | FJ_NODE_SELF_EQUAL);
    return 0;
}

int
fj_flatten_field(FjFlattener *f, PyObject *value)
{
    return FJ_UNLIKELY(f->expected != NULL) ? fj_expected_field(f->expected, value)
                                            : add_static(f, value, FJ_NODE_FIELD);
}

void
fj_flatten_add_context(FjFlattener *f, PyObject *object, const char *operation)
{
    PyObject *exception = fj_compat_take_exception();
    Py_ssize_t index = fj_structure_append(f->structure, FJ_MISSING, 0, NULL, object);
    PyErr_Clear(); /* the exception matters more than its path */
    fj_compat_give_exception(exception);
    if (index >= 0) {
        fj_structure_add_error_context(f->structure, (uint32_t)index, operation);
    }
}

int
fj_flatten_changed(FjFlattener *f, PyObject *object)
{
    if (f->expected != NULL && f->expected->name == NULL) {
        f->expected->differs = 1;
        return -1;
    }
    PyErr_Format(PyExc_RuntimeError, "`%.200s` changed while it was flattened",
                 Py_TYPE(object)->tp_name);
    return -1;
}

static int
add_ref(FjFlattener *f, uint32_t number)
{
    PyObject *aux = PyLong_FromUnsignedLong(number);
    FjNode *node = aux == NULL ? NULL : fj_structure_add(f->structure, FJ_REF, aux);
    Py_XDECREF(aux);
    f->structure->num_refs += node != NULL;
    return node == NULL ? -1 : 0;
}

/* Walks an object of a `by_identity` type in the arguments of a call. */
static int
walk_numbered(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    if (f->expected != NULL) { /* the caller checks that they are all distinct */
        int met = fj_expected_identity(f->expected, object, f->objects);
        return met < 0   ? -1
               : met > 0 ? 0
               : fj_leafbuf_push(f->objects, object) < 0
                   ? -1
                   : fj_readers[kind->code]->flatten(f, object, kind);
    }
    Py_ssize_t known = fj_address_map_find(&f->numbers, object);
    if (known >= 0) {
        return add_ref(f, (uint32_t)known);
    }
    uint32_t index = f->structure->count;
    if (fj_address_map_add(&f->numbers, object, (uint32_t)f->numbers.count) < 0 ||
        fj_leafbuf_push(f->objects, object) < 0 ||
        fj_readers[kind->code]->flatten(f, object, kind) < 0) {
        return -1;
    }
    f->structure->num_identities++;
    f->structure->nodes[index].flags |= FJ_NODE_IDENTITY;
    return 0;
}

/* Adds an object if `is_leaf` or `expected` makes it a leaf.  1, 0, or -1 with an error. */
static FJ_NOINLINE int
stop_at_leaf(FjFlattener *f, PyObject *object)
{
    if (f->expected != NULL) {
        return fj_expected_meet(f->expected, object);
    }
    int is_leaf = fj_take_truth(PyObject_CallOneArg(f->is_leaf, object));
    return is_leaf <= 0 ? is_leaf : add_array(f, object) < 0 ? -1 : 1;
}

/* In `array_flags`: an FjChoose selects leaves.  Selected leaves get FJ_NODE_NUMBERS. */
#define CHOOSING (1 << 16)

/* Looks up the choice for the next leaf. */
static void
take_choice(FjFlattener *f)
{
    int chosen = f->next_choice < f->num_choices && f->choice[f->next_choice];
    f->array_flags = CHOOSING | (chosen ? FJ_NODE_NUMBERS : 0);
    f->next_choice++;
}

/* code_of for an argument in which numbers can be traced. */
static FJ_NOINLINE FjKindCode
code_among_numbers(FjFlattener *f, const FjNodeKind *kind)
{
    const FjRegistry *registry = f->structure->registry;
    int is_leaf =
        kind->code == FJ_ARRAY || kind->code == FJ_STATIC || kind->code == FJ_MAYBE_ARRAY;
    if (is_leaf && (f->array_flags & CHOOSING)) {
        take_choice(f);
    }
    return kind->code == FJ_STATIC && (f->array_flags & FJ_NODE_NUMBERS) &&
                   fj_registry_names(registry->traced_in, kind->type)
               ? FJ_ARRAY
               : fj_registry_code(registry, kind);
}

/* Returns the code of a kind under the policy, in this argument.  Called exactly once per
 * object, because it takes the next choice. */
static inline FjKindCode
code_of(FjFlattener *f, const FjNodeKind *kind)
{
    return FJ_UNLIKELY(f->array_flags != 0) ? code_among_numbers(f, kind)
                                            : fj_registry_code(f->structure->registry, kind);
}

static int
add_leaf(FjFlattener *f, PyObject *object, FjKindCode code)
{
    int is_asked = code == FJ_MAYBE_ARRAY && !f->is_tree_structure;
    int is_array = is_asked ? fj_registry_is_array(fj_flatten_registry(f), object)
                            : f->is_tree_structure || code == FJ_ARRAY;
    return is_array < 0 ? -1
           : is_array   ? add_array(f, object)
                        : add_static(f, object, is_asked ? FJ_NODE_MAYBE_ARRAY : 0);
}

static int
walk_container(FjFlattener *f, PyObject *object, FjNodeKind *kind)
{
    if (Py_EnterRecursiveCall(" while flattening a pytree: it is too deep, or a cycle")) {
        return -1;
    }
    const FjRegistry *registry = fj_flatten_registry(f);
    int result = f->objects != NULL && registry->by_identity != NULL &&
                         fj_registry_is_by_identity(registry, kind->type)
                     ? walk_numbered(f, object, kind)
                     : fj_readers[kind->code]->flatten(f, object, kind);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_flatten_object(FjFlattener *f, PyObject *object)
{
#if FJ_FREE_THREADED
    if (f->compare != NULL) {
        int met = f->compare(f, object);
        if (FJ_LIKELY(met != 0)) {
            return met < 0 ? -1 : 0;
        }
    }
#endif
    if (Py_TYPE(object) == f->array_type) {
        return add_array(f, object);
    }
    if (Py_TYPE(object) == f->static_type) {
        return add_static(f, object, 0);
    }
    FjNodeKind *kind;
    if (FJ_UNLIKELY(f->may_stop)) {
        int stopped = stop_at_leaf(f, object);
        if (stopped != 0) {
            return stopped < 0 ? -1 : 0;
        }
    }
    else {
        /* A borrowed kind is safe: adding an array or a static runs no Python code. */
        kind = fj_registry_cached_kind(fj_flatten_registry(f), Py_TYPE(object));
        if (FJ_LIKELY(kind != NULL && (kind->code == FJ_ARRAY || kind->code == FJ_STATIC))) {
            if (!f->is_tree_structure && code_of(f, kind) != FJ_ARRAY) {
                f->static_type = f->array_flags & CHOOSING ? NULL : Py_TYPE(object);
                return add_static(f, object, 0);
            }
            f->array_type = f->array_flags & CHOOSING ? NULL : Py_TYPE(object);
            return add_array(f, object);
        }
    }
    kind = fj_registry_kind(fj_flatten_registry(f), object);
    if (kind == NULL) {
        return -1;
    }
    if (FJ_UNLIKELY(f->expected != NULL) && kind->code <= FJ_STATIC) {
        /* A leaf instead of an expected REF or container. */
        Py_DECREF(kind);
        f->expected->differs = 1;
        return -1;
    }
    FjKindCode code = code_of(f, kind);
    int result = code <= FJ_STATIC || (code == FJ_NONE && f->none_is_leaf)
                     ? add_leaf(f, object, code)
                     : walk_container(f, object, kind);
    Py_DECREF(kind);
    return result;
}

/* Walks `tree`.  Returns `f->structure`. */
static FjStructure *
walk_tree(FjFlattener *f, PyObject *tree)
{
    if (f->structure != NULL && fj_flatten_object(f, tree) < 0) {
        Py_CLEAR(f->structure);
    }
    return f->structure;
}

FjStructure *
fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays)
{
    FjFlattener f = {.structure = fj_structure_new(registry), .arrays = arrays};
    if (walk_tree(&f, tree) != NULL) {
        fj_show((PyObject *)f.structure);
    }
    return f.structure;
}

FjStructure *
fj_flatten_leaves(FjRegistry *registry, PyObject *tree, PyObject *is_leaf, int none_is_leaf,
                  FjLeafBuf *leaves)
{
    FjFlattener f = {.structure = fj_structure_new(registry),
                     .arrays = leaves,
                     .is_tree_structure = 1,
                     .none_is_leaf = none_is_leaf,
                     .may_stop = is_leaf != NULL,
                     .is_leaf = is_leaf};
    if (f.structure != NULL) {
        f.structure->is_tree_structure = 1;
    }
    return walk_tree(&f, tree);
}

int
fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name, const char *model,
                 FjLeafBuf *leaves)
{
    FjExpected expected = {.structure = structure,
                           .next = structure->nodes,
                           .arrays = leaves,
                           .name = name,
                           .model = model};
    FjFlattener f = {.structure = structure,
                     .arrays = leaves,
                     .is_tree_structure = 1,
                     .may_stop = 1,
                     .expected = &expected};
    return fj_flatten_object(&f, tree);
}

/* Records the nodes of numbered objects.  0, or -1 with MemoryError. */
static int
note_identities(FjStructure *structure)
{
    structure->identities = PyMem_New(uint32_t, structure->num_identities);
    if (structure->identities == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0, number = 0; i < structure->count; i++) {
        if (fj_node_has_number(&structure->nodes[i])) {
            structure->identities[number++] = i;
        }
    }
    return 0;
}

static int
walk_argument(FjFlattener *f, PyObject *argument, int flags)
{
    f->array_flags = flags & FJ_TRACED_ARGUMENT ? FJ_NODE_NUMBERS : 0;
    f->array_type = f->static_type = NULL;
    return argument == NULL             ? fj_flatten_nothing(f, FJ_MISSING)
           : flags & FJ_STATIC_ARGUMENT ? add_static(f, argument, FJ_NODE_ARGUMENT)
                                        : fj_flatten_object(f, argument);
}

static int
walk_chosen(FjFlattener *f, PyObject *argument, PyObject *choice)
{
    if (choice == NULL || !PyBytes_Check(choice)) {
        if (choice != NULL) {
            PyErr_SetString(PyExc_TypeError, "a choice of leaves must be bytes");
        }
        return -1;
    }
    f->choice = PyBytes_AS_STRING(choice);
    f->num_choices = PyBytes_GET_SIZE(choice);
    f->next_choice = 0;
    f->array_flags = CHOOSING;
    f->array_type = f->static_type = NULL;
    int result = fj_flatten_object(f, argument);
    if (result == 0 && f->next_choice != f->num_choices) {
        PyErr_SetString(PyExc_RuntimeError, "an argument changed while a filter was asked");
        result = -1;
    }
    return result;
}

FjStructure *
fj_flatten_arguments(FjRegistry *registry, PyObject *names, const char *flags,
                     PyObject *const *arguments, FjChoose choose, void *context,
                     FjLeafBuf *arrays, FjLeafBuf *objects)
{
    FjFlattener f = {
        .structure = fj_structure_new(registry), .arrays = arrays, .objects = objects};
    if (f.structure == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    Py_ssize_t root = fj_flatten_open(&f, FJ_ARGUMENTS, count, NULL, names, 0);
    int result = root < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; i < count && result == 0; i++) {
        int flag = flags == NULL ? 0 : flags[i];
        if (FJ_UNLIKELY(flag & FJ_CHOSEN_ARGUMENT) && arguments[i] != NULL) {
            PyObject *choice = choose(context, i, arguments[i]);
            result = walk_chosen(&f, arguments[i], choice);
            Py_XDECREF(choice);
            f.structure->is_asked |= (flag & FJ_ASKED_ARGUMENT) != 0;
            f.structure->may_run_python |= f.structure->is_asked;
        }
        else {
            result = walk_argument(&f, arguments[i], flag);
        }
    }
    fj_address_map_clear(&f.numbers);
    if (result == 0) {
        fj_structure_close(f.structure, root);
        result = f.structure->num_identities > 0 ? note_identities(f.structure) : 0;
    }
    if (result < 0) {
        Py_DECREF(f.structure);
        return NULL;
    }
    fj_show((PyObject *)f.structure);
    return f.structure;
}
