/* Evaluates filter expressions one after the other, each for the remaining leaves.
 *
 * An expression edits a mask in place, with a byte per leaf: the mask selects the leaves to
 * evaluate, and afterwards those that the expression takes.  So the second operand of `and` is
 * only evaluated for leaves that the first takes, and the second of `or` for the rest.
 *
 * Python code can run in predicates, in `expression_of`, in `classify` and `is_array`, and in
 * flatten.c and pattern.c.  It can change the tree.  The leaves are safe because the caller
 * holds them.  Only a tree of filters rereads the tree, and checks its leaves. */
#include "tree/filter.h"

#include "walk/flatten.h"
#include "walk/prefix.h"
#include "tree/pattern.h"

/* The tree or subtree to filter.  All pointers are borrowed. */
typedef struct {
    FjStructure *structure; /* of the whole tree */
    PyObject *tree;
    PyObject *is_leaf; /* or NULL */
    PyObject *const *leaves;
    Py_ssize_t first; /* index of leaves[0] in the whole tree */
    Py_ssize_t count;
    int depth; /* of nested trees of filters */
} FilterRun;

#define MAX_DEPTH 50

/* Clears the mask of leaves that an expression doesn't take. */
static int run_expression(FilterRun *r, PyObject *expression, uint8_t *mask);

/* ---- leaves by type, by predicate ---- */

static int
run_arrays(FilterRun *r, uint8_t *mask)
{
    FjRegistry *registry = r->structure->registry;
    PyObject *const *leaves = r->leaves; /* copied: a write to the mask might alias `r` */
    Py_ssize_t count = r->count;
    const PyTypeObject *last = NULL; /* a type with `last_answer` for all instances */
    int last_answer = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *leaf = leaves[i];
        if (!mask[i]) {
            continue;
        }
        if (FJ_LIKELY(Py_TYPE(leaf) == last)) {
            mask[i] = (uint8_t)last_answer;
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
        mask[i] = (uint8_t)answer;
    }
    return 0;
}

/* If the predicate raises, adds a note with the path. */
static int
run_predicate(FilterRun *r, PyObject *predicate, uint8_t *mask)
{
    for (Py_ssize_t i = 0; i < r->count; i++) {
        if (!mask[i]) {
            continue;
        }
        PyObject *answer = PyObject_CallOneArg(predicate, r->leaves[i]);
        int taken = answer == NULL ? -1 : PyObject_IsTrue(answer);
        if (answer == Py_None) {
            PyErr_Format(PyExc_TypeError,
                         "the filter %R returned None: it has to return a bool", predicate);
            taken = -1;
        }
        Py_XDECREF(answer);
        if (taken < 0) {
            fj_structure_add_error_context(
                r->structure, fj_structure_leaf(r->structure, r->first + i), "ask");
            return -1;
        }
        mask[i] = (uint8_t)taken;
    }
    return 0;
}

/* ---- combinations of filters, path patterns ---- */

/* Takes leaves that `p` doesn't take or, with a `q`, leaves that `p` or `q` takes. */
static int
run_not_or(FilterRun *r, PyObject *p, PyObject *q, uint8_t *mask)
{
    size_t size = (size_t)r->count;
    uint8_t *taken = PyMem_Malloc(size + 1);
    if (taken == NULL) {
        return fj_raise_no_memory();
    }
    memcpy(taken, mask, size);
    int result = run_expression(r, p, taken);
    for (size_t i = 0; i < size; i++) {
        mask[i] ^= taken[i];
    }
    if (result == 0 && q != NULL) {
        result = run_expression(r, q, mask);
        for (size_t i = 0; i < size; i++) {
            mask[i] |= taken[i];
        }
    }
    PyMem_Free(taken);
    return result;
}

static int
run_path(FilterRun *r, PyObject *components, int is_strict, uint8_t *mask)
{
    if (!PyTuple_Check(components)) {
        return fj_raise(PyExc_TypeError, "the components of a path pattern are a tuple");
    }
    if (r->count != r->structure->open_leaves) {
        return fj_raise(PyExc_ValueError, "a path pattern inside a tree of filters");
    }
    return fj_pattern_match(r->structure, components, is_strict, mask);
}

/* ---- a tree of filters ---- */

/* Flattens `part`'s tree and sets its count to the number of leaves, at most `rest`.  1 if
 * they are the leaves from its first one on, 0 if not, or -1 with an error. */
static int
count_leaves(FilterRun *part, Py_ssize_t rest)
{
    FJ_LEAFBUF(leaves, FJ_LEAFBUF_FEW);
    FjStructure *structure =
        fj_flatten_leaves(part->structure->registry, part->tree, part->is_leaf, 0, &leaves);
    int result = structure == NULL ? -1 : leaves.count <= rest;
    for (Py_ssize_t i = 0; result > 0 && i < leaves.count; i++) {
        result = leaves.items[i] == part->leaves[i];
    }
    part->count = leaves.count;
    fj_leafbuf_clear(&leaves);
    Py_XDECREF(structure);
    return result;
}

/* Evaluates one filter of a tree of filters for its subtree. */
static int
run_subtree(FilterRun *part, PyObject *expression_of, PyObject *filter, uint8_t *mask)
{
    PyObject *expression = filter == Py_True || filter == Py_False
                               ? Py_NewRef(filter)
                               : PyObject_CallOneArg(expression_of, filter);
    int result = expression == NULL ? -1 : run_expression(part, expression, mask);
    Py_XDECREF(expression);
    return result;
}

static int
run_tree(FilterRun *r, PyObject *filter_tree, PyObject *expression_of, uint8_t *mask)
{
    FilterRun part = *r;
    Py_ssize_t done = 0; /* leaves filtered so far */
    /* A level uses more stack than Python's own limit assumes. */
    if (part.depth++ == MAX_DEPTH) {
        return fj_raise(PyExc_RecursionError, "trees of filters are nested too deeply");
    }
    FJ_LEAFBUF(filters, FJ_LEAFBUF_FEW);
    FJ_LEAFBUF(subtrees, FJ_LEAFBUF_FEW);
    FjStructure *prefix =
        fj_flatten_leaves(r->structure->registry, filter_tree, NULL, 0, &filters);
    /* 1 while the trees fit, 0 if they don't, or -1 with an error. */
    int result = prefix != NULL && fj_flatten_up_to(prefix, r->tree, "the tree", "the filter",
                                                    &subtrees) == 0
                     ? 1
                     : -1;
    for (Py_ssize_t i = 0; result > 0 && i < subtrees.count; i++) {
        part.tree = subtrees.items[i];
        part.leaves = r->leaves + done;
        part.first = r->first + done;
        result = count_leaves(&part, r->count - done);
        if (result > 0 &&
            run_subtree(&part, expression_of, filters.items[i], mask + done) < 0) {
            result = -1;
        }
        done += part.count;
    }
    if (result == 0 || (result > 0 && done != r->count)) {
        PyErr_SetString(PyExc_ValueError,
                        "a tree of filters goes deeper than `is_leaf` lets the tree go, "
                        "or the tree changed meanwhile");
        result = -1;
    }
    fj_leafbuf_clear(&filters);
    fj_leafbuf_clear(&subtrees);
    Py_XDECREF(prefix);
    return result < 0 ? -1 : 0;
}

enum { ARRAYS, ARRAY, LEAF, PATH, PATH_OR_NONE, AND, OR, NOT, TREE };

static const struct {
    const char *name;
    Py_ssize_t size; /* of the expression */
} operations[] = {
    [ARRAYS] = {"arrays", 1},
    [ARRAY] = {"array", 2},
    [LEAF] = {"leaf", 2},
    [PATH] = {"path", 2},
    [PATH_OR_NONE] = {"path or none", 2},
    [AND] = {"and", 3},
    [OR] = {"or", 3},
    [NOT] = {"not", 2},
    [TREE] = {"tree", 3},
};

/* Returns the operation of a non-bool expression, or -1 with a ValueError. */
static int
operation_of(PyObject *expression)
{
    Py_ssize_t size = PyTuple_Check(expression) ? PyTuple_GET_SIZE(expression) : 0;
    PyObject *name = size > 0 ? PyTuple_GET_ITEM(expression, 0) : Py_None;
    for (int i = 0; PyUnicode_Check(name) && i <= TREE; i++) {
        if (operations[i].size == size &&
            PyUnicode_CompareWithASCIIString(name, operations[i].name) == 0) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError, "not a filter expression: %R", expression);
    return -1;
}

static int
run_operation(FilterRun *r, int operation, PyObject *const *operands, uint8_t *mask)
{
    int result;
    switch (operation) {
    case ARRAYS:
        return run_arrays(r, mask);
    case ARRAY:
        result = run_arrays(r, mask);
        return result < 0 ? result : run_predicate(r, operands[0], mask);
    case LEAF:
        return run_predicate(r, operands[0], mask);
    case PATH:
    case PATH_OR_NONE:
        return run_path(r, operands[0], operation == PATH, mask);
    case AND:
        result = run_expression(r, operands[0], mask);
        return result < 0 ? result : run_expression(r, operands[1], mask);
    case OR:
    case NOT:
        return run_not_or(r, operands[0], operation == OR ? operands[1] : NULL, mask);
    default:
        return run_tree(r, operands[0], operands[1], mask);
    }
}

static int
run_expression(FilterRun *r, PyObject *expression, uint8_t *mask)
{
    if (expression == Py_True) {
        return 0;
    }
    if (expression == Py_False) {
        memset(mask, 0, (size_t)r->count);
        return 0;
    }
    int operation = operation_of(expression);
    if (operation < 0 || Py_EnterRecursiveCall(" in a filter made of filters")) {
        return -1;
    }
    int result = run_operation(r, operation, ((PyTupleObject *)expression)->ob_item + 1, mask);
    Py_LeaveRecursiveCall();
    return result;
}

int16_t *
fj_filter_groups(FjStructure *structure, PyObject *tree, PyObject *is_leaf,
                 PyObject *const *leaves, PyObject *candidates, PyObject *expressions)
{
    if (expressions != NULL &&
        (!PyTuple_Check(expressions) || PyTuple_GET_SIZE(expressions) >= INT16_MAX)) {
        PyErr_SetString(PyExc_TypeError, "expressions must be a tuple of less than 32,767");
        return NULL;
    }
    FilterRun r = {.structure = structure,
                   .tree = tree,
                   .is_leaf = is_leaf == Py_None ? NULL : is_leaf,
                   .leaves = leaves,
                   .count = structure->open_leaves};
    size_t size = (size_t)r.count;
    int16_t *groups = PyMem_New(int16_t, 2 * size + 1);
    if (groups == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    /* The masks follow the groups in the same allocation. */
    uint8_t *remaining = (uint8_t *)(groups + size), *taken = remaining + size;
    memset(remaining, 1, size);
    int result = run_expression(&r, candidates, remaining);
    int16_t count = expressions == NULL ? 0 : (int16_t)PyTuple_GET_SIZE(expressions);
    for (size_t i = 0; i < size; i++) {
        groups[i] = remaining[i] ? count : -1;
    }
    for (int16_t group = 0; result == 0 && group < count; group++) {
        memcpy(taken, remaining, size);
        result = run_expression(&r, PyTuple_GET_ITEM(expressions, group), taken);
        /* Branch-free, for vectorization. */
        for (size_t i = 0; i < size; i++) {
            remaining[i] ^= taken[i];
            groups[i] = taken[i] ? group : groups[i];
        }
    }
    if (result < 0) {
        PyMem_Free(groups);
        return NULL;
    }
    return groups;
}
