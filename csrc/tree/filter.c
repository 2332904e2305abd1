/* Evaluates filter expressions: one after the other, each for all leaves that remain.
 *
 * An expression is evaluated on masks, with one byte for each leaf: `asked` has the leaves
 * that the expression is evaluated for, and `taken` receives the leaves that it takes.  The
 * second operand of `and` is evaluated only for the leaves that the first takes, that of `or`
 * only for those that the first does not take.
 *
 * Python code can run in predicates, in `expression_of`, in `classify` and `is_array`, and
 * where flatten.c and pattern.c say.  It may change the tree.  The leaves are
 * safe, since the caller holds them; only a tree of filters looks at the tree again, and it
 * checks that the tree still has the same leaves.
 */
#include "tree/filter.h"

#include "walk/flatten.h"
#include "tree/pattern.h"

/* The tree or subtree that expressions are evaluated for.  All pointers are borrowed. */
typedef struct {
    FjStructure *structure; /* of the whole tree */
    PyObject *tree;
    PyObject *is_leaf; /* or NULL */
    PyObject *const *leaves;
    Py_ssize_t first; /* index of the first of the leaves in the whole tree */
    Py_ssize_t count;
    int depth; /* of trees of filters inside trees of filters */
} FilterRun;

#define MAX_DEPTH 50

static int run_expression(FilterRun *r, PyObject *expression, const uint8_t *asked,
                          uint8_t *taken);

/* A new mask of zeros, to be freed by PyMem_Free; NULL with an error. */
static uint8_t *
new_mask(FilterRun *r)
{
    uint8_t *mask = PyMem_Calloc((size_t)r->count + 1, 1);
    if (mask == NULL) {
        PyErr_NoMemory();
    }
    return mask;
}

/* ---- leaves by type, by predicate ---- */

static int
run_arrays(FilterRun *r, const uint8_t *asked, uint8_t *taken)
{
    FjRegistry *registry = r->structure->registry;
    const PyTypeObject *last = NULL; /* a type of which all instances have `last_answer` */
    int last_answer = 0;
    for (Py_ssize_t i = 0; i < r->count; i++) {
        PyObject *leaf = r->leaves[i];
        if (!asked[i]) {
            continue;
        }
        if (FJ_LIKELY(Py_TYPE(leaf) == last)) {
            taken[i] = (uint8_t)last_answer;
            continue;
        }
        FjNodeKind *kind = fj_registry_kind(registry, leaf);
        if (kind == NULL) {
            return -1;
        }
        int answer = kind->code == FJ_MAYBE_ARRAY
                         ? fj_registry_is_array(registry, leaf)
                         : fj_registry_code(registry, kind) == FJ_ARRAY;
        last = kind->code == FJ_MAYBE_ARRAY ? NULL : kind->type;
        last_answer = answer;
        Py_DECREF(kind);
        if (answer < 0) {
            return -1;
        }
        taken[i] = (uint8_t)answer;
    }
    return 0;
}

/* Whether a predicate takes leaf `i`.  1, 0, or -1 with an error, to which a note with the
 * path is added. */
static int
call_predicate(FilterRun *r, PyObject *predicate, Py_ssize_t i)
{
    PyObject *answer = PyObject_CallOneArg(predicate, r->leaves[i]);
    int taken = answer == NULL ? -1 : PyObject_IsTrue(answer);
    if (answer == Py_None) {
        PyErr_Format(PyExc_TypeError, "the filter %R returned None: it has to return a bool",
                     predicate);
        taken = -1;
    }
    Py_XDECREF(answer);
    if (taken < 0) {
        fj_structure_add_leaf_context(r->structure, r->first + i, "ask");
    }
    return taken;
}

static int
run_leaf_predicate(FilterRun *r, PyObject *predicate, const uint8_t *asked, uint8_t *taken)
{
    for (Py_ssize_t i = 0; i < r->count; i++) {
        if (asked[i]) {
            int answer = call_predicate(r, predicate, i);
            if (answer < 0) {
                return -1;
            }
            taken[i] = (uint8_t)answer;
        }
    }
    return 0;
}

static int
run_array_predicate(FilterRun *r, PyObject *predicate, const uint8_t *asked, uint8_t *taken)
{
    uint8_t *arrays = new_mask(r);
    int result = arrays == NULL || run_arrays(r, asked, arrays) < 0
                     ? -1
                     : run_leaf_predicate(r, predicate, arrays, taken);
    PyMem_Free(arrays);
    return result;
}

/* ---- combinations of filters, path patterns ---- */

static int
run_and(FilterRun *r, PyObject *p, PyObject *q, const uint8_t *asked, uint8_t *taken)
{
    uint8_t *first = new_mask(r);
    int result = first == NULL || run_expression(r, p, asked, first) < 0
                     ? -1
                     : run_expression(r, q, first, taken);
    PyMem_Free(first);
    return result;
}

static int
run_or(FilterRun *r, PyObject *p, PyObject *q, const uint8_t *asked, uint8_t *taken)
{
    uint8_t *remaining = new_mask(r), *second = new_mask(r);
    int result = -1;
    if (remaining == NULL || second == NULL || run_expression(r, p, asked, taken) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < r->count; i++) {
        remaining[i] = asked[i] && !taken[i];
    }
    if (run_expression(r, q, remaining, second) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < r->count; i++) {
        taken[i] |= second[i];
    }
    result = 0;
done:
    PyMem_Free(remaining);
    PyMem_Free(second);
    return result;
}

static int
run_not(FilterRun *r, PyObject *p, const uint8_t *asked, uint8_t *taken)
{
    uint8_t *refused = new_mask(r);
    int result = refused == NULL ? -1 : run_expression(r, p, asked, refused);
    for (Py_ssize_t i = 0; result == 0 && i < r->count; i++) {
        taken[i] = asked[i] && !refused[i];
    }
    PyMem_Free(refused);
    return result;
}

static int
run_path(FilterRun *r, PyObject *components, int is_strict, const uint8_t *asked,
         uint8_t *taken)
{
    if (!PyTuple_Check(components)) {
        PyErr_SetString(PyExc_TypeError, "the components of a path pattern are a tuple");
        return -1;
    }
    if (r->count != r->structure->all_leaves) {
        PyErr_SetString(PyExc_ValueError, "a path pattern inside a tree of filters");
        return -1;
    }
    int result = fj_pattern_match(r->structure, components, is_strict, taken);
    for (Py_ssize_t i = 0; result == 0 && i < r->count; i++) {
        taken[i] &= asked[i];
    }
    return result;
}

/* ---- a tree of filters ---- */

/* Flattens a subtree again and sets `*count` to the number of its leaves.  1 if they are the
 * leaves from index `first` on, 0 if they are not, or -1 with an error. */
static int
count_leaves(FilterRun *r, PyObject *subtree, Py_ssize_t first, Py_ssize_t *count)
{
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    FjStructure *structure =
        fj_flatten_leaves(r->structure->registry, subtree, r->is_leaf, 0, &leaves);
    int result = structure == NULL ? -1 : leaves.count <= r->count - first;
    for (Py_ssize_t i = 0; result > 0 && i < leaves.count; i++) {
        result = leaves.items[i] == r->leaves[first + i];
    }
    *count = leaves.count;
    fj_leafbuf_clear(&leaves);
    Py_XDECREF(structure);
    return result;
}

/* Evaluates one filter of a tree of filters for the subtree in its place. */
static int
run_subtree(FilterRun *part, PyObject *expression_of, PyObject *filter, const uint8_t *asked,
            uint8_t *taken)
{
    if (filter == Py_True || filter == Py_False) {
        return run_expression(part, filter, asked, taken);
    }
    PyObject *expression = PyObject_CallOneArg(expression_of, filter);
    int result = expression == NULL ? -1 : run_expression(part, expression, asked, taken);
    Py_XDECREF(expression);
    return result;
}

static int
run_tree(FilterRun *r, PyObject *filter_tree, PyObject *expression_of, const uint8_t *asked,
         uint8_t *taken)
{
    PyObject *room[FJ_LEAFBUF_FEW], *more_room[FJ_LEAFBUF_FEW];
    FjLeafBuf filters, subtrees;
    Py_ssize_t first = 0, count = 0;
    int result = -1, fits = 1;
    /* A level uses more stack than Python's own limit allows for. */
    if (r->depth == MAX_DEPTH) {
        PyErr_SetString(PyExc_RecursionError, "trees of filters are nested too deeply");
        return -1;
    }
    fj_leafbuf_init(&filters, room, FJ_LEAFBUF_FEW);
    fj_leafbuf_init(&subtrees, more_room, FJ_LEAFBUF_FEW);
    FjStructure *prefix =
        fj_flatten_leaves(r->structure->registry, filter_tree, NULL, 0, &filters);
    if (prefix == NULL ||
        fj_flatten_up_to(prefix, r->tree, "the tree", "the filter", &subtrees) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < subtrees.count; i++) {
        PyObject *subtree = subtrees.items[i];
        fits = count_leaves(r, subtree, first, &count);
        if (fits <= 0) {
            break;
        }
        FilterRun part = {.structure = r->structure,
                          .tree = subtree,
                          .is_leaf = r->is_leaf,
                          .leaves = r->leaves + first,
                          .first = r->first + first,
                          .count = count,
                          .depth = r->depth + 1};
        if (run_subtree(&part, expression_of, filters.items[i], asked + first, taken + first) <
            0) {
            goto done;
        }
        first += count;
    }
    if (fits < 0) {
        goto done;
    }
    if (!fits || first != r->count) {
        PyErr_SetString(PyExc_ValueError,
                        "a tree of filters goes deeper than `is_leaf` lets the tree go, "
                        "or the tree changed meanwhile");
        goto done;
    }
    result = 0;
done:
    fj_leafbuf_clear(&filters);
    fj_leafbuf_clear(&subtrees);
    Py_XDECREF(prefix);
    return result;
}

/* ---- expressions ---- */

typedef enum { ARRAYS, ARRAY, LEAF, PATH, PATH_OR_NONE, AND, OR, NOT, TREE } Operation;

static const struct {
    const char *name;
    Py_ssize_t size; /* of the expression */
    Operation operation;
} operations[] = {
    {"arrays", 1, ARRAYS},
    {"array", 2, ARRAY},
    {"leaf", 2, LEAF},
    {"path", 2, PATH},
    {"path or none", 2, PATH_OR_NONE},
    {"and", 3, AND},
    {"or", 3, OR},
    {"not", 2, NOT},
    {"tree", 3, TREE},
};

/* Decodes the operation of an expression that is not a bool.  0, or -1 with a ValueError. */
static int
decode_operation(PyObject *expression, Operation *operation)
{
    PyObject *name = PyTuple_Check(expression) && PyTuple_GET_SIZE(expression) > 0
                         ? PyTuple_GET_ITEM(expression, 0)
                         : NULL;
    if (name != NULL && PyUnicode_Check(name)) {
        for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
            if (operations[i].size == PyTuple_GET_SIZE(expression) &&
                PyUnicode_CompareWithASCIIString(name, operations[i].name) == 0) {
                *operation = operations[i].operation;
                return 0;
            }
        }
    }
    PyErr_Format(PyExc_ValueError, "not a filter expression: %R", expression);
    return -1;
}

static int
run_operation(FilterRun *r, Operation operation, PyObject *const *operands,
              const uint8_t *asked, uint8_t *taken)
{
    switch (operation) {
    case ARRAYS:
        return run_arrays(r, asked, taken);
    case ARRAY:
        return run_array_predicate(r, operands[0], asked, taken);
    case LEAF:
        return run_leaf_predicate(r, operands[0], asked, taken);
    case PATH:
    case PATH_OR_NONE:
        return run_path(r, operands[0], operation == PATH, asked, taken);
    case AND:
        return run_and(r, operands[0], operands[1], asked, taken);
    case OR:
        return run_or(r, operands[0], operands[1], asked, taken);
    case NOT:
        return run_not(r, operands[0], asked, taken);
    default:
        return run_tree(r, operands[0], operands[1], asked, taken);
    }
}

/* Evaluates an expression: sets `taken[i]` to 1 for each leaf in `asked` that it takes.
 * `taken` is a mask of zeros.  0, or -1 with an error. */
static int
run_expression(FilterRun *r, PyObject *expression, const uint8_t *asked, uint8_t *taken)
{
    Operation operation;
    if (expression == Py_True) {
        memcpy(taken, asked, (size_t)r->count);
        return 0;
    }
    if (expression == Py_False) {
        return 0;
    }
    if (decode_operation(expression, &operation) < 0 ||
        Py_EnterRecursiveCall(" in a filter made of filters")) {
        return -1;
    }
    int result =
        run_operation(r, operation, ((PyTupleObject *)expression)->ob_item + 1, asked, taken);
    Py_LeaveRecursiveCall();
    return result;
}

static int
run_filters(FilterRun *r, PyObject *candidates, PyObject *expressions, int16_t *groups)
{
    size_t size = (size_t)r->count;
    uint8_t *remaining = new_mask(r), *taken = new_mask(r);
    int result = -1;
    if (remaining == NULL || taken == NULL) {
        goto done;
    }
    memset(taken, 1, size);
    if (run_expression(r, candidates == NULL ? Py_True : candidates, taken, remaining) < 0) {
        goto done;
    }
    int16_t count = (int16_t)PyTuple_GET_SIZE(expressions);
    for (size_t i = 0; i < size; i++) {
        groups[i] = remaining[i] ? count : -1;
    }
    for (int16_t group = 0; group < count; group++) {
        memset(taken, 0, size);
        if (run_expression(r, PyTuple_GET_ITEM(expressions, group), remaining, taken) < 0) {
            goto done;
        }
        /* Without a branch, so that the compiler can vectorize the loop. */
        for (size_t i = 0; i < size; i++) {
            remaining[i] &= (uint8_t)!taken[i];
            groups[i] = taken[i] ? group : groups[i];
        }
    }
    result = 0;
done:
    PyMem_Free(remaining);
    PyMem_Free(taken);
    return result;
}

int16_t *
fj_filter_groups(FjStructure *structure, PyObject *tree, PyObject *is_leaf,
                 PyObject *const *leaves, PyObject *candidates, PyObject *expressions)
{
    if (!PyTuple_Check(expressions) || PyTuple_GET_SIZE(expressions) >= INT16_MAX) {
        PyErr_SetString(PyExc_TypeError, "expressions must be a tuple of less than 32,767");
        return NULL;
    }
    FilterRun r = {.structure = structure,
                   .tree = tree,
                   .is_leaf = is_leaf == Py_None ? NULL : is_leaf,
                   .leaves = leaves,
                   .count = structure->all_leaves};
    int16_t *groups = PyMem_New(int16_t, (size_t)r.count + 1);
    if (groups == NULL) {
        PyErr_NoMemory();
    }
    else if (run_filters(&r, candidates, expressions, groups) < 0) {
        PyMem_Free(groups);
        groups = NULL;
    }
    return groups;
}
