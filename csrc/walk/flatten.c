/* The walk of a cache miss, and of all tree functions: flattens a tree of any structure.
 *
 * It asks the registry for the kind of each type, reads containers by their kind (kinds.h),
 * and appends nodes to a new Structure.
 *
 * Python code can run nearly anywhere in this file: in `classify` and `is_array` for new types
 * and some instances, in the caller's `is_leaf` and `choose`, in the readers, and in
 * finalizers.  So the walk holds a strong reference to each object while walking it.  It
 * refers to nodes by index: the array moves. */
#include "walk/flatten.h"

#include "base/address_map.h"
#include "structure/statics.h"
#include "walk/kinds.h"

/* The state of a walk. */
typedef struct {
    FjStructure *structure;
    FjRegistry *registry;
    FjLeafBuf *arrays;
    FjScratch scratch;
    int is_tree_structure; /* from fj_flatten_leaves: every leaf counts as an array */
    int none_is_leaf;
    /* A type with only arrays, or only statics, as its instances in this argument; or NULL.
     * An instance in the buffer or the Structure keeps the type alive while no Python code of
     * a reader can change its class. */
    const PyTypeObject *array_type, *static_type;
    int traces_numbers; /* some numbers in this argument can be arrays */
    uint16_t
        array_flags;    /* of array nodes: FJ_NODE_NUMBERS if this one can be a number, or 0 */
    const char *choice; /* an FjChoose's answer for this argument, a byte per leaf; or NULL */
    Py_ssize_t next_choice, num_choices;
    PyObject *is_leaf; /* borrowed, or NULL */
    /* For call arguments: the numbered objects (Sharing in structure.h), and their numbers. */
    FjLeafBuf *objects; /* or NULL */
    FjAddressMap numbers;
} Flattener;

static int
add_array(Flattener *f, PyObject *object)
{
    FjNode *node = fj_structure_add(f->structure, FJ_ARRAY, NULL);
    if (node == NULL) {
        return -1;
    }
    node->flags |= f->array_flags;
    f->structure->open_leaves++;
    return fj_leafbuf_push(f->arrays, object);
}

static FJ_NOINLINE int
add_mutable_static(Flattener *f, PyObject *object, FjStaticRule rule, int flag)
{
    int is_asked = flag == FJ_NODE_MAYBE_ARRAY;
    int is_fixed = is_asked ? 0 : fj_static_is_fixed(f->registry, object, rule);
    FjNode *node = is_fixed < 0 ? NULL : fj_structure_add(f->structure, FJ_STATIC, object);
    if (node == NULL) {
        return -1;
    }
    node->flags = (uint16_t)(flag | (is_fixed ? FJ_NODE_FIXED : 0));
    f->structure->may_run_python |= is_asked;
    return 0;
}

/* Adds a non-array.  `flag` is FJ_NODE_FIELD for a static field, FJ_NODE_MAYBE_ARRAY for a
 * leaf that `is_array` rejected, FJ_NODE_ARGUMENT for a static argument, or 0 for any other
 * leaf. */
static int
add_static(Flattener *f, PyObject *object, int flag)
{
    FjStaticRule rule = fj_static_rule(f->registry, object);
    if (FJ_UNLIKELY(flag == FJ_NODE_MAYBE_ARRAY || !fj_static_rule_is_inert(rule))) {
        return add_mutable_static(f, object, rule, flag);
    }
    FjNode *node = fj_structure_add(f->structure, FJ_STATIC, object);
    if (node == NULL) {
        return -1;
    }
    node->flags = (uint16_t)(flag | FJ_NODE_FIXED);
    return 0;
}

/* Adds None, or an absent field or argument. */
static int
add_nothing(Flattener *f, FjKindCode code)
{
    return fj_structure_add(f->structure, code, NULL) == NULL ? -1 : 0;
}

/* (P) Adds the path of `object`, for which no node exists yet, to the current exception. */
static void
add_context(Flattener *f, PyObject *object, const char *operation)
{
    PyObject *exception = fj_compat_get_raised();
    Py_ssize_t index = fj_structure_append(f->structure, FJ_MISSING, 0, NULL, object);
    PyErr_Clear(); /* the exception matters more than its path */
    fj_compat_set_raised(exception);
    if (index >= 0) {
        fj_structure_add_error_context(f->structure, (uint32_t)index, operation);
    }
}

static int
add_ref(Flattener *f, uint32_t number)
{
    PyObject *aux = PyLong_FromUnsignedLong(number);
    FjNode *node = aux == NULL ? NULL : fj_structure_add(f->structure, FJ_REF, aux);
    Py_XDECREF(aux);
    f->structure->num_refs += node != NULL;
    return node == NULL ? -1 : 0;
}

/* Looks up the choice for the next leaf. */
static void
take_choice(Flattener *f)
{
    int chosen = f->next_choice < f->num_choices && f->choice[f->next_choice];
    f->array_flags = chosen ? FJ_NODE_NUMBERS : 0;
    f->next_choice++;
}

/* code_of for an argument in which numbers can be traced. */
static FJ_NOINLINE FjKindCode
code_among_numbers(Flattener *f, const FjNodeKind *kind)
{
    const FjRegistry *registry = f->structure->registry;
    int is_leaf =
        kind->code == FJ_ARRAY || kind->code == FJ_STATIC || kind->code == FJ_MAYBE_ARRAY;
    if (is_leaf && f->choice != NULL) {
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
code_of(Flattener *f, const FjNodeKind *kind)
{
    return FJ_UNLIKELY(f->traces_numbers) ? code_among_numbers(f, kind)
                                          : fj_registry_code(f->structure->registry, kind);
}

static int
add_leaf(Flattener *f, PyObject *object, FjKindCode code)
{
    int is_asked = code == FJ_MAYBE_ARRAY && !f->is_tree_structure;
    int is_array = is_asked ? fj_registry_is_array(f->registry, object)
                            : f->is_tree_structure || code == FJ_ARRAY;
    return is_array < 0 ? -1
           : is_array   ? add_array(f, object)
                        : add_static(f, object, is_asked ? FJ_NODE_MAYBE_ARRAY : 0);
}

/* ---- containers ---- */

/* True if the tuple of a just closed node is fixed: Fixed tuples in structure.h. */
static int
is_fixed_tuple(const FjStructure *structure, uint32_t index)
{
    uint32_t end = structure->info[index].subtree_end;
    for (uint32_t i = index + 1; i < end; i = structure->info[i].subtree_end) {
        const FjNode *child = &structure->nodes[i];
        if (!(child->code == FJ_NONE ||
              (child->code == FJ_STATIC && child->flags & FJ_NODE_FIXED) ||
              (child->code == FJ_TUPLE && child->aux != NULL))) {
            return 0;
        }
    }
    return 1;
}

/* (P) Reads a container and adds its node.  `kind` is NULL for a dict that an object holds as
 * a field, and then `is_static` if its values are static.  Returns the index of the node, or
 * -1 with an error. */
static FJ_NOINLINE Py_ssize_t
open_container(Flattener *f, PyObject *object, FjNodeKind *kind, int is_static,
               FjReadChildren *children)
{
    FjContents c = {.registry = f->registry, .scratch = &f->scratch, .is_new = 1};
    int result = kind == NULL ? fj_contents_read_dict(&c, FJ_DICT, object, is_static)
                              : fj_contents_read(&c, object, kind);
    Py_ssize_t index = -1;
    if (result == 0) {
        fj_contents_changed(object);
    }
    else if (result < 0 && c.failed_to != NULL) {
        add_context(f, object, c.failed_to);
    }
    else if (result > 0) {
        index = fj_structure_append(f->structure, c.code, c.children.count, c.type, c.aux);
    }
    if (c.code == FJ_CUSTOM || c.runs_python) {
        f->array_type = f->static_type = NULL;
    }
    if (index < 0) {
        fj_contents_clear(&c);
        return -1;
    }
    f->structure->nodes[index].flags |= (uint16_t)c.flags;
    f->structure->may_run_python |= c.runs_python;
    *children = c.children;
    Py_XDECREF(c.aux);
    Py_XDECREF(c.aux_data);
    return index;
}

static int walk(Flattener *f, PyObject *object);

/* Adds a container: see open_container. */
static int
walk_contents(Flattener *f, PyObject *object, FjNodeKind *kind, int is_static)
{
    FjReadChildren c; /* not all contents: recursion needs small frames */
    int result = 0;
    Py_ssize_t index = open_container(f, object, kind, is_static, &c);
    if (index < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < c.count && result == 0; i++) {
        PyObject *child = c.items[i];
        int is_tree = fj_contents_is_tree(&c, i);
        result = FJ_UNLIKELY(child == NULL) ? add_nothing(f, FJ_MISSING)
                 : FJ_UNLIKELY(fj_contents_is_dict(&c, i))
                     ? walk_contents(f, child, NULL, !is_tree)
                 : is_tree ? walk(f, child)
                           : add_static(f, child, FJ_NODE_FIELD);
    }
    fj_contents_drop(&f->scratch, &c);
    if (result < 0) {
        return -1;
    }
    FjKindCode code = f->structure->nodes[index].code;
    fj_structure_close(f->structure, index);
    if (code == FJ_TUPLE && is_fixed_tuple(f->structure, (uint32_t)index)) {
        f->structure->nodes[index].aux = Py_NewRef(object);
    }
    return 0;
}

/* Walks an object of a `by_identity` type in the arguments of a call. */
static int
walk_numbered(Flattener *f, PyObject *object, FjNodeKind *kind)
{
    Py_ssize_t known = fj_address_map_find(&f->numbers, object);
    if (known >= 0) {
        return add_ref(f, (uint32_t)known);
    }
    uint32_t index = f->structure->count;
    if (fj_address_map_add(&f->numbers, object, (uint32_t)f->numbers.count) < 0 ||
        fj_leafbuf_push(f->objects, object) < 0 || walk_contents(f, object, kind, 0) < 0) {
        return -1;
    }
    f->structure->num_numbered++;
    f->structure->nodes[index].flags |= FJ_NODE_NUMBERED;
    return 0;
}

static int
walk_deeper(Flattener *f, PyObject *object, FjNodeKind *kind)
{
    if (Py_EnterRecursiveCall(" while flattening a pytree: it is too deep, or a cycle")) {
        return -1;
    }
    int is_numbered = f->objects != NULL && f->registry->by_identity != NULL &&
                      fj_registry_is_by_identity(f->registry, kind->type);
    int result =
        is_numbered ? walk_numbered(f, object, kind) : walk_contents(f, object, kind, 0);
    Py_LeaveRecursiveCall();
    return result;
}

/* (P) Walks an object that the caller holds: adds its nodes and pushes its arrays. */
static int
walk(Flattener *f, PyObject *object)
{
    if (Py_TYPE(object) == f->array_type) {
        return add_array(f, object);
    }
    if (Py_TYPE(object) == f->static_type) {
        return add_static(f, object, 0);
    }
    FjNodeKind *kind;
    if (FJ_UNLIKELY(f->is_leaf != NULL)) {
        int is_leaf = fj_steal_truth(PyObject_CallOneArg(f->is_leaf, object));
        if (is_leaf != 0) {
            return is_leaf < 0 ? -1 : add_array(f, object);
        }
    }
    else {
        /* A borrowed kind is safe: adding an array or a static runs no Python code. */
        kind = fj_registry_cached_kind(f->registry, Py_TYPE(object));
        if (FJ_LIKELY(kind != NULL && (kind->code == FJ_ARRAY || kind->code == FJ_STATIC))) {
            if (!f->is_tree_structure && code_of(f, kind) != FJ_ARRAY) {
                f->static_type = f->choice != NULL ? NULL : Py_TYPE(object);
                return add_static(f, object, 0);
            }
            f->array_type = f->choice != NULL ? NULL : Py_TYPE(object);
            return add_array(f, object);
        }
    }
    kind = fj_registry_kind(f->registry, object);
    if (kind == NULL) {
        return -1;
    }
    FjKindCode code = code_of(f, kind);
    int result = code <= FJ_STATIC || (code == FJ_NONE && f->none_is_leaf)
                     ? add_leaf(f, object, code)
                 : code == FJ_NONE ? add_nothing(f, FJ_NONE)
                                   : walk_deeper(f, object, kind);
    Py_DECREF(kind);
    return result;
}

/* Walks `tree` with a new Structure.  Returns it. */
static FjStructure *
walk_tree(Flattener *f, PyObject *tree)
{
    PyObject *stack[FJ_SCRATCH_INLINE];
    f->scratch = fj_scratch_of(stack);
    f->structure = fj_structure_new(f->registry);
    if (f->structure != NULL) {
        f->structure->is_tree_structure = f->is_tree_structure;
        if (walk(f, tree) < 0) {
            Py_CLEAR(f->structure);
        }
    }
    return f->structure;
}

FjStructure *
fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays)
{
    Flattener f = {.registry = registry, .arrays = arrays};
    if (walk_tree(&f, tree) != NULL) {
        fj_show((PyObject *)f.structure);
    }
    return f.structure;
}

FjStructure *
fj_flatten_leaves(FjRegistry *registry, PyObject *tree, PyObject *is_leaf, int none_is_leaf,
                  FjLeafBuf *leaves)
{
    Flattener f = {.registry = registry,
                   .arrays = leaves,
                   .is_tree_structure = 1,
                   .none_is_leaf = none_is_leaf,
                   .is_leaf = is_leaf};
    return walk_tree(&f, tree);
}

/* Records the nodes of numbered objects.  0, or -1 with MemoryError. */
static int
note_identities(FjStructure *structure)
{
    structure->identities = PyMem_New(uint32_t, structure->num_numbered);
    if (structure->identities == NULL) {
        return fj_raise_no_memory();
    }
    for (uint32_t i = 0, number = 0; i < structure->count; i++) {
        if (fj_node_has_number(&structure->nodes[i])) {
            structure->identities[number++] = i;
        }
    }
    return 0;
}

static int
walk_argument(Flattener *f, PyObject *argument, int flags)
{
    f->traces_numbers = flags & FJ_TRACED_ARGUMENT;
    f->array_flags = f->traces_numbers ? FJ_NODE_NUMBERS : 0;
    f->choice = NULL;
    f->array_type = f->static_type = NULL;
    return argument == NULL             ? add_nothing(f, FJ_MISSING)
           : flags & FJ_STATIC_ARGUMENT ? add_static(f, argument, FJ_NODE_ARGUMENT)
                                        : walk(f, argument);
}

static int
walk_chosen(Flattener *f, PyObject *argument, PyObject *choice)
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
    f->traces_numbers = 1;
    f->array_type = f->static_type = NULL;
    int result = walk(f, argument);
    if (result == 0 && f->next_choice != f->num_choices) {
        PyErr_SetString(PyExc_RuntimeError,
                        "an argument changed while its leaves were chosen");
        result = -1;
    }
    return result;
}

FjStructure *
fj_flatten_arguments(FjRegistry *registry, PyObject *names, const char *flags,
                     PyObject *const *arguments, FjChoose choose, void *context,
                     FjLeafBuf *arrays, FjLeafBuf *objects)
{
    PyObject *stack[FJ_SCRATCH_INLINE];
    Flattener f = {.structure = fj_structure_new(registry),
                   .registry = registry,
                   .arrays = arrays,
                   .scratch = fj_scratch_of(stack),
                   .objects = objects};
    if (f.structure == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    Py_ssize_t root = fj_structure_append(f.structure, FJ_ARGUMENTS, count, NULL, names);
    int result = root < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; i < count && result == 0; i++) {
        int flag = flags == NULL ? 0 : flags[i];
        if (FJ_UNLIKELY(flag & FJ_CHOSEN_ARGUMENT) && arguments[i] != NULL) {
            PyObject *choice = choose(context, i, arguments[i]);
            result = walk_chosen(&f, arguments[i], choice);
            Py_XDECREF(choice);
        }
        else {
            result = walk_argument(&f, arguments[i], flag);
        }
    }
    fj_address_map_clear(&f.numbers);
    if (result == 0) {
        fj_structure_close(f.structure, root);
        result = f.structure->num_numbered > 0 ? note_identities(f.structure) : 0;
    }
    if (result < 0) {
        Py_DECREF(f.structure);
        return NULL;
    }
    fj_show((PyObject *)f.structure);
    return f.structure;
}
