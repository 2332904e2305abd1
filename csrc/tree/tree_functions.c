/* Functions on whole trees: they flatten, process the leaves, and build.
 *
 * As in jax.tree_util, a buffer holds all leaves before they are processed.  So a filter that
 * changes the tree doesn't affect the result.
 *
 * Python code can run in filters and `is_leaf`, in flatten.c, filter.c and build.c, in adding
 * a note to an error (messages.c), and when references are dropped. */
#include "tree/tree_functions.h"

#include "base/state.h"
#include "structure/messages.h"
#include "walk/build.h"
#include "walk/flatten.h"
#include "walk/prefix.h"
#include "tree/filter.h"

FjRegistry *
fj_tree_registry(PyObject *module, PyObject *const *args, Py_ssize_t nargs, Py_ssize_t count,
                 const char *usage)
{
    FjState *state = PyModule_GetState(module);
    if (nargs != count || Py_TYPE(args[0]) != state->registry) {
        PyErr_Format(PyExc_TypeError, "the arguments must be %s", usage);
        return NULL;
    }
    return (FjRegistry *)args[0];
}

/* A function of the module that flattens one of its arguments and processes the leaves.  The
 * first argument is the registry; the rest are numbered from 0. */
typedef struct {
    const char *usage;    /* all arguments, for errors: "(registry, tree, ...)" */
    int argument_count;   /* without the registry */
    int tree_argument;    /* number of the argument to flatten */
    int is_leaf_argument; /* number of `is_leaf`, a callable or None; -1 without it */
    int takes_trees;      /* flattens the first of a tuple of trees, with None as a leaf */
    /* `args` leaves out the registry.  Returns a new reference. */
    PyObject *(*apply)(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args);
} TreeFunction;

/* Flattens the tree and applies the function.  If that fails, adds a note with the path. */
static PyObject *
call(PyObject *module, PyObject *const *args, Py_ssize_t nargs, const TreeFunction *function)
{
    FjRegistry *registry =
        fj_tree_registry(module, args++, nargs, function->argument_count + 1, function->usage);
    if (registry == NULL) {
        return NULL;
    }
    PyObject *tree = args[function->tree_argument], *result = NULL;
    PyObject *is_leaf =
        function->is_leaf_argument < 0 ? Py_None : args[function->is_leaf_argument];
    if (function->takes_trees) {
        if (!PyTuple_Check(tree) || PyTuple_GET_SIZE(tree) == 0) {
            return PyErr_Format(PyExc_TypeError, "there must be at least one tree");
        }
        tree = PyTuple_GET_ITEM(tree, 0);
    }
    if (is_leaf != Py_None && !PyCallable_Check(is_leaf)) {
        return PyErr_Format(PyExc_TypeError,
                            "`is_leaf` must be a function of a node or None, not %R", is_leaf);
    }
    FJ_LEAFBUF(leaves, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_flatten_leaves(
        registry, tree, is_leaf == Py_None ? NULL : is_leaf, function->takes_trees, &leaves);
    if (structure != NULL) {
        result = function->apply(structure, &leaves, args);
    }
    if (result == NULL) {
        fj_messages_note_context(registry);
    }
    Py_XDECREF(structure);
    fj_leafbuf_clear(&leaves);
    return result;
}

/* Defines a function of the module from a TreeFunction with these members. */
#define FUNCTION(name, ...)                                                                   \
    PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t nargs)                 \
    {                                                                                         \
        static const TreeFunction function = {__VA_ARGS__};                                   \
        return call(module, args, nargs, &function);                                          \
    }

/* ---- open and static leaves ---- */

/* Makes leaves with a negative group static: moves them from the buffer to their nodes, and
 * the other leaves' groups to the front. */
static void
make_static(FjStructure *structure, FjLeafBuf *leaves, int16_t *groups)
{
    Py_ssize_t leaf = 0, open = 0;
    for (uint32_t i = 0; i < structure->count; i++) {
        FjNode *node = &structure->nodes[i];
        if (node->code != FJ_ARRAY) {
            continue;
        }
        PyObject *value = leaves->items[leaf];
        if (groups[leaf] < 0) {
            node->code = FJ_STATIC;
            node->aux = value;
        }
        else {
            groups[open] = groups[leaf];
            leaves->items[open++] = value;
        }
        leaf++;
    }
    leaves->count = structure->open_leaves = open;
}

/* (tree, candidates, expressions, is_leaf) */
static PyObject *
groups_of(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *result = NULL, *list = NULL;
    int16_t *groups =
        fj_filter_groups(structure, args[0], args[3], leaves->items, args[1], args[2]);
    if (groups != NULL) {
        make_static(structure, leaves, groups);
        list = PyList_New(0);
    }
    for (Py_ssize_t i = 0; list != NULL && i < leaves->count; i++) {
        if (fj_list_steal(list, PyLong_FromLong(groups[i])) < 0) {
            Py_CLEAR(list);
        }
    }
    if (list != NULL) {
        fj_show((PyObject *)structure);
        result = Py_BuildValue("(NON)", fj_leafbuf_move(leaves), structure, list);
    }
    PyMem_Free(groups);
    return result;
}

FUNCTION(fj_tree_groups, .usage = "(registry, tree, candidates, expressions, is_leaf)",
         .argument_count = 4, .tree_argument = 0, .is_leaf_argument = 3, .apply = groups_of)

/* (tree, expression, is_leaf) */
static PyObject *
flatten(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    if (args[1] != Py_True) {
        int16_t *groups =
            fj_filter_groups(structure, args[0], args[2], leaves->items, args[1], NULL);
        if (groups == NULL) {
            return NULL;
        }
        make_static(structure, leaves, groups);
        PyMem_Free(groups);
    }
    fj_show((PyObject *)structure);
    return Py_BuildValue("(NO)", fj_leafbuf_move(leaves), structure);
}

FUNCTION(fj_tree_flatten, .usage = "(registry, tree, expression, is_leaf)",
         .argument_count = 3, .tree_argument = 0, .is_leaf_argument = 2, .apply = flatten)

/* (hole, skeleton, leaves): skeleton's Structure.  `leaves` other than `hole` are static. */
static PyObject *
from_skeleton(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *given = args[2];
    Py_ssize_t count = structure->open_leaves;
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != count) {
        return PyErr_Format(PyExc_ValueError,
                            "leaves must be a tuple with an item for each leaf");
    }
    int16_t *groups = PyMem_New(int16_t, (size_t)count + 1);
    if (groups == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        groups[i] = PyTuple_GET_ITEM(given, i) == args[0] ? 0 : -1;
    }
    fj_leafbuf_clear(leaves); /* holes until now */
    int result = fj_leafbuf_extend(leaves, ((PyTupleObject *)given)->ob_item, count);
    if (result == 0) {
        make_static(structure, leaves, groups);
    }
    PyMem_Free(groups);
    if (result < 0) {
        return NULL;
    }
    fj_show((PyObject *)structure);
    return Py_NewRef((PyObject *)structure);
}

FUNCTION(fj_tree_from_skeleton, .usage = "(registry, hole, skeleton, leaves)",
         .argument_count = 3, .tree_argument = 1, .is_leaf_argument = -1,
         .apply = from_skeleton)

/* Returns a tuple with a tree per group.  `replace` stands for the leaves of other groups. */
static PyObject *
build_parts(FjStructure *structure, const FjLeafBuf *leaves, const int16_t *groups,
            Py_ssize_t count, PyObject *replace)
{
    PyObject **given = PyMem_New(PyObject *, (size_t)leaves->count + 1);
    if (given == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *parts = fj_hide(PyTuple_New(count)); /* at least 1 item */
    for (Py_ssize_t group = 0; parts != NULL && group < count; group++) {
        for (Py_ssize_t i = 0; i < leaves->count; i++) {
            given[i] = groups[i] == group ? leaves->items[i] : replace;
        }
        PyObject *tree = fj_build_tree(structure, given);
        if (tree == NULL) {
            Py_CLEAR(parts);
            break;
        }
        PyTuple_SET_ITEM(parts, group, tree);
    }
    PyMem_Free(given);
    if (parts != NULL) {
        fj_show(parts);
    }
    return parts;
}

/* (tree, expressions, is_leaf, replace) */
static PyObject *
partition(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    int16_t *groups =
        fj_filter_groups(structure, args[0], args[2], leaves->items, Py_True, args[1]);
    PyObject *parts = groups == NULL ? NULL
                                     : build_parts(structure, leaves, groups,
                                                   PyTuple_GET_SIZE(args[1]) + 1, args[3]);
    PyMem_Free(groups);
    return parts;
}

FUNCTION(fj_tree_partition, .usage = "(registry, tree, expressions, is_leaf, replace)",
         .argument_count = 4, .tree_argument = 0, .is_leaf_argument = 2, .apply = partition)

/* Chooses the leaves of the combined tree.  The buffer holds and owns the leaves of `width`
 * trees, tree after tree.  For each position, swaps the first leaf that isn't None into the
 * first tree.  With `strict`, two leaves in one position are a ValueError. */
static int
choose_leaves(FjStructure *structure, FjLeafBuf *leaves, Py_ssize_t width, int strict)
{
    Py_ssize_t count = structure->open_leaves;
    PyObject **items = leaves->items;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t found = items[i] == Py_None ? -1 : 0;
        for (Py_ssize_t j = 1; j < width && (strict || found < 0); j++) {
            if (items[j * count + i] == Py_None) {
                continue;
            }
            if (found >= 0) {
                return fj_messages_raise(fj_messages_call(
                    structure->registry, "leaf_in_two_trees", "(Nnn)",
                    fj_path_of_node(structure, fj_structure_leaf(structure, i)), found + 1,
                    j + 1));
            }
            found = j;
        }
        if (found > 0) {
            PyObject *none = items[i];
            items[i] = items[found * count + i];
            items[found * count + i] = none;
        }
    }
    return 0;
}

/* (trees, is_leaf, strict) */
static PyObject *
combine(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    Py_ssize_t width = PyTuple_GET_SIZE(args[0]);
    for (Py_ssize_t i = 1; i < width; i++) {
        char name[32];
        PyOS_snprintf(name, sizeof(name), "tree %zd", i + 1);
        if (fj_flatten_up_to(structure, PyTuple_GET_ITEM(args[0], i), name, "tree 1", leaves) <
            0) {
            return NULL;
        }
    }
    return choose_leaves(structure, leaves, width, args[2] == Py_True) < 0
               ? NULL
               : fj_build_tree(structure, leaves->items);
}

FUNCTION(fj_tree_combine, .usage = "(registry, trees, is_leaf, strict)", .argument_count = 3,
         .tree_argument = 0, .is_leaf_argument = 1, .takes_trees = 1, .apply = combine)
