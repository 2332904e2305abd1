/* Filters, one after the other, each over all the leaves that are left.
 *
 * A expression works on masks: which leaves it is asked about, which it takes.  `and` asks its
 * second part only about what the first takes, `or` about what it does not.
 *
 * Python code can run in predicates, in classify and is_array, in the comparison of a filter
 * tree with the tree, and in what pattern.c says.  The caller holds the leaves.  The tree may
 * change meanwhile: it is only looked at again to be held against a filter tree, carefully.
 */
#include "tree/filter.h"

#include "walk/flatten.h"
#include "tree/pattern.h"
#include "walk/flatten_up_to.h"

/* A tree, or a part of it. */
typedef struct {
    FjStructure *structure; /* of the whole tree */
    PyObject *tree;
    PyObject *is_leaf; /* borrowed, or NULL */
    PyObject *const *leaves;
    Py_ssize_t first; /* the number of the first of them in the whole tree */
    Py_ssize_t count;
    int depth; /* of trees of filters inside trees of filters */
} FilterRun;

#define DEEPEST 50

static int run(FilterRun *s, PyObject *expression, const uint8_t *asked, uint8_t *taken);

/* Room for a mask; NULL with an error. */
static uint8_t *
new_mask(FilterRun *s)
{
    uint8_t *mask = PyMem_Calloc((size_t)s->count + 1, 1);
    if (mask == NULL) {
        PyErr_NoMemory();
    }
    return mask;
}

/* ---- leaves by type, by predicate ---- */

static int
run_arrays(FilterRun *s, const uint8_t *asked, uint8_t *taken)
{
    FjRegistry *registry = s->structure->registry;
    const PyTypeObject *last = NULL; /* NULL after Python code has run */
    int last_answer = 0;
    for (Py_ssize_t i = 0; i < s->count; i++) {
        PyObject *leaf = s->leaves[i];
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
        int answer = kind->code == FJ_PER_INSTANCE ? fj_registry_is_array(registry, leaf)
                                                   : kind->code == FJ_ARRAY;
        last = kind->code == FJ_PER_INSTANCE ? NULL : kind->type;
        last_answer = answer;
        Py_DECREF(kind);
        if (answer < 0) {
            return -1;
        }
        taken[i] = (uint8_t)answer;
    }
    return 0;
}

/* 1, 0, or -1 with an error that names the leaf. */
static int
ask(FilterRun *s, PyObject *predicate, Py_ssize_t i)
{
    PyObject *answer = PyObject_CallOneArg(predicate, s->leaves[i]);
    int taken = answer == NULL ? -1 : PyObject_IsTrue(answer);
    if (answer == Py_None) {
        PyErr_Format(PyExc_TypeError, "the filter %R returned None: it has to return a bool",
                     predicate);
        taken = -1;
    }
    Py_XDECREF(answer);
    if (taken < 0) {
        fj_structure_note_leaf("while a filter was asked about", s->structure, s->first + i);
    }
    return taken;
}

static int
run_predicate(FilterRun *s, PyObject *predicate, const uint8_t *asked, uint8_t *taken)
{
    for (Py_ssize_t i = 0; i < s->count; i++) {
        if (asked[i]) {
            int answer = ask(s, predicate, i);
            if (answer < 0) {
                return -1;
            }
            taken[i] = (uint8_t)answer;
        }
    }
    return 0;
}

/* ---- filters made of filters ---- */

static int
run_and(FilterRun *s, PyObject *p, PyObject *q, const uint8_t *asked, uint8_t *taken)
{
    uint8_t *first = new_mask(s);
    int result = first == NULL || run(s, p, asked, first) < 0 ? -1 : run(s, q, first, taken);
    PyMem_Free(first);
    return result;
}

static int
run_or(FilterRun *s, PyObject *p, PyObject *q, const uint8_t *asked, uint8_t *taken)
{
    uint8_t *rest = new_mask(s), *more = new_mask(s);
    int result = -1;
    if (rest == NULL || more == NULL || run(s, p, asked, taken) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < s->count; i++) {
        rest[i] = asked[i] && !taken[i];
    }
    if (run(s, q, rest, more) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < s->count; i++) {
        taken[i] |= more[i];
    }
    result = 0;
done:
    PyMem_Free(rest);
    PyMem_Free(more);
    return result;
}

static int
run_not(FilterRun *s, PyObject *p, const uint8_t *asked, uint8_t *taken)
{
    uint8_t *refused = new_mask(s);
    int result = refused == NULL ? -1 : run(s, p, asked, refused);
    for (Py_ssize_t i = 0; result == 0 && i < s->count; i++) {
        taken[i] = asked[i] && !refused[i];
    }
    PyMem_Free(refused);
    return result;
}

static int
run_path(FilterRun *s, PyObject *components, const uint8_t *asked, uint8_t *taken)
{
    if (!PyTuple_Check(components)) {
        PyErr_SetString(PyExc_TypeError, "the components of a path pattern are a tuple");
        return -1;
    }
    if (s->count != s->structure->all_leaves) {
        PyErr_SetString(PyExc_ValueError, "a path pattern inside a tree of filters");
        return -1;
    }
    int result = fj_pattern_match(s->structure, components, taken);
    for (Py_ssize_t i = 0; result == 0 && i < s->count; i++) {
        taken[i] &= asked[i];
    }
    return result;
}

/* ---- a tree of filters ---- */

/* Sets `count` to how many of the leaves that are left from `first` on are those of a subtree.
 * 1, 0 where they are not the next ones, or -1 with an error. */
static int
count_leaves(FilterRun *s, PyObject *subtree, Py_ssize_t first, Py_ssize_t *count)
{
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    FjStructure *structure =
        fj_flatten_leaves(s->structure->registry, subtree, s->is_leaf, 0, &leaves);
    int result = structure == NULL ? -1 : leaves.count <= s->count - first;
    for (Py_ssize_t i = 0; result > 0 && i < leaves.count; i++) {
        result = leaves.items[i] == s->leaves[first + i];
    }
    *count = leaves.count;
    fj_leafbuf_clear(&leaves);
    Py_XDECREF(structure);
    return result;
}

/* Runs what stands in one place of the tree of filters over a part of the leaves. */
static int
run_part(FilterRun *part, PyObject *expression_of, PyObject *filter, const uint8_t *asked,
         uint8_t *taken)
{
    if (filter == Py_True || filter == Py_False) {
        return run(part, filter, asked, taken);
    }
    PyObject *expression = PyObject_CallOneArg(expression_of, filter);
    int result = expression == NULL ? -1 : run(part, expression, asked, taken);
    Py_XDECREF(expression);
    return result;
}

static int
run_tree(FilterRun *s, PyObject *spec, PyObject *expression_of, const uint8_t *asked,
         uint8_t *taken)
{
    PyObject *room[FJ_LEAFBUF_FEW], *more_room[FJ_LEAFBUF_FEW];
    FjLeafBuf filters, subtrees;
    Py_ssize_t first = 0, count = 0;
    int result = -1, fits = 1;
    if (s->depth == DEEPEST) { /* each level takes more of the stack than Python counts with */
        PyErr_SetString(PyExc_RecursionError, "trees of filters inside trees of filters");
        return -1;
    }
    fj_leafbuf_init(&filters, room, FJ_LEAFBUF_FEW);
    fj_leafbuf_init(&subtrees, more_room, FJ_LEAFBUF_FEW);
    FjStructure *prefix = fj_flatten_leaves(s->structure->registry, spec, NULL, 0, &filters);
    if (prefix == NULL ||
        fj_flatten_up_to(prefix, s->tree, "the tree", "the filter", &subtrees) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < subtrees.count; i++) {
        PyObject *subtree = subtrees.items[i];
        fits = count_leaves(s, subtree, first, &count);
        if (fits <= 0) {
            break;
        }
        FilterRun part = {s->structure,     subtree, s->is_leaf,  s->leaves + first,
                          s->first + first, count,   s->depth + 1};
        if (run_part(&part, expression_of, filters.items[i], asked + first, taken + first) <
            0) {
            goto done;
        }
        first += count;
    }
    if (fits < 0) {
        goto done;
    }
    if (!fits || first != s->count) {
        PyErr_SetString(PyExc_ValueError,
                        "a tree of filters goes deeper than `is_leaf` lets the "
                        "tree go, or the tree changed meanwhile");
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

static int
is_op(PyObject *expression, const char *name, Py_ssize_t size)
{
    return PyTuple_GET_SIZE(expression) == size &&
           PyUnicode_Check(PyTuple_GET_ITEM(expression, 0)) &&
           PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(expression, 0), name) == 0;
}

static int
run_op(FilterRun *s, PyObject *expression, const uint8_t *asked, uint8_t *taken)
{
    PyObject *p = PyTuple_GET_SIZE(expression) > 1 ? PyTuple_GET_ITEM(expression, 1) : Py_None;
    PyObject *q = PyTuple_GET_SIZE(expression) > 2 ? PyTuple_GET_ITEM(expression, 2) : Py_None;
    if (is_op(expression, "arrays", 1)) {
        return run_arrays(s, asked, taken);
    }
    if (is_op(expression, "array", 2)) {
        uint8_t *arrays = new_mask(s);
        int result = arrays == NULL || run_arrays(s, asked, arrays) < 0
                         ? -1
                         : run_predicate(s, p, arrays, taken);
        PyMem_Free(arrays);
        return result;
    }
    if (is_op(expression, "leaf", 2)) {
        return run_predicate(s, p, asked, taken);
    }
    if (is_op(expression, "path", 2)) {
        return run_path(s, p, asked, taken);
    }
    if (is_op(expression, "and", 3)) {
        return run_and(s, p, q, asked, taken);
    }
    if (is_op(expression, "or", 3)) {
        return run_or(s, p, q, asked, taken);
    }
    if (is_op(expression, "not", 2)) {
        return run_not(s, p, asked, taken);
    }
    if (is_op(expression, "tree", 3)) {
        return run_tree(s, p, q, asked, taken);
    }
    PyErr_Format(PyExc_ValueError, "not a filter's expression: %R", expression);
    return -1;
}

/* `taken` is all zeros. */
static int
run(FilterRun *s, PyObject *expression, const uint8_t *asked, uint8_t *taken)
{
    if (expression == Py_True) {
        memcpy(taken, asked, (size_t)s->count);
        return 0;
    }
    if (expression == Py_False) {
        return 0;
    }
    if (!PyTuple_Check(expression) || PyTuple_GET_SIZE(expression) == 0) {
        PyErr_Format(PyExc_ValueError, "not a filter's expression: %R", expression);
        return -1;
    }
    if (Py_EnterRecursiveCall(" in a filter made of filters")) {
        return -1;
    }
    int result = run_op(s, expression, asked, taken);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_filter_groups(FjStructure *structure, PyObject *tree, PyObject *is_leaf,
                 PyObject *const *leaves, PyObject *candidates, PyObject *expressions,
                 int16_t *groups)
{
    FilterRun s = {.structure = structure,
                   .tree = tree,
                   .is_leaf = is_leaf == Py_None ? NULL : is_leaf,
                   .leaves = leaves,
                   .count = structure->all_leaves};
    size_t size = (size_t)s.count;
    uint8_t *left = new_mask(&s), *taken = new_mask(&s);
    int result = -1;
    if (left == NULL || taken == NULL) {
        goto done;
    }
    memset(taken, 1, size);
    if (run(&s, candidates == NULL ? Py_True : candidates, taken, left) < 0) {
        goto done;
    }
    int16_t count = (int16_t)PyTuple_GET_SIZE(expressions);
    for (size_t i = 0; i < size; i++) {
        groups[i] = left[i] ? count : -1;
    }
    for (int16_t group = 0; group < count; group++) {
        memset(taken, 0, size);
        if (run(&s, PyTuple_GET_ITEM(expressions, group), left, taken) < 0) {
            goto done;
        }
        for (size_t i = 0; i < size;
             i++) { /* without a branch: the compiler takes many at once */
            left[i] &= (uint8_t)!taken[i];
            groups[i] = taken[i] ? group : groups[i];
        }
    }
    result = 0;
done:
    PyMem_Free(left);
    PyMem_Free(taken);
    return result;
}
