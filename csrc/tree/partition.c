/* Splitting a tree into parts and combining parts into a tree.
 *
 * A tree is flattened once, and a tree is built for each part from the same Structure.
 *
 * Python code can run in filters and `is_leaf`, where tree_functions.c, filter.c and words.c
 * say, and where references are dropped.  A buffer holds the leaves meanwhile.
 */
#include "tree/partition.h"

#include "structure/children.h"
#include "structure/words.h"
#include "walk/build.h"
#include "tree/filter.h"
#include "tree/tree_functions.h"

/* ---- partition ---- */

/* A new tuple with the tree of each group, in which `replace` stands for all other leaves. */
static PyObject *
build_parts(FjStructure *structure, const FjLeafBuf *leaves, const int16_t *groups,
            Py_ssize_t count, PyObject *replace)
{
    PyObject **given = PyMem_New(PyObject *, (size_t)leaves->count + 1);
    if (given == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *parts = fj_hide(PyTuple_New(count)); /* `count` is at least 1 */
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

PyObject *
fj_partition(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {
        .usage = "(registry, tree, expressions, is_leaf, replace)",
        .argument_count = 4,
        .tree_argument = 0,
        .is_leaf_argument = 2,
        .apply = partition};
    return fj_tree_call(module, args, nargs, &function);
}

/* (tree, expression, is_leaf) */
static PyObject *
mask(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *expressions = PyTuple_Pack(1, args[1]);
    PyObject *result = NULL;
    if (expressions == NULL) {
        return NULL;
    }
    int16_t *groups =
        fj_filter_groups(structure, args[0], args[2], leaves->items, Py_True, expressions);
    if (groups != NULL && (result = PyBytes_FromStringAndSize(NULL, leaves->count)) != NULL) {
        for (Py_ssize_t i = 0; i < leaves->count; i++) {
            PyBytes_AS_STRING(result)[i] = groups[i] == 0;
        }
    }
    PyMem_Free(groups);
    Py_DECREF(expressions);
    return result;
}

PyObject *
fj_partition_mask(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {.usage = "(registry, tree, expression, is_leaf)",
                                            .argument_count = 3,
                                            .tree_argument = 0,
                                            .is_leaf_argument = 2,
                                            .apply = mask};
    return fj_tree_call(module, args, nargs, &function);
}

/* The groups of the open leaves: a new list of int. */
static PyObject *
list_groups(const FjStructure *structure, const int16_t *groups)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < structure->all_leaves; i++) {
        if (groups[i] >= 0 && fj_list_take(list, PyLong_FromLong(groups[i])) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* (tree, candidates, expressions, is_leaf) */
static PyObject *
tree_groups(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *open = NULL, *list = NULL, *result = NULL;
    int16_t *groups =
        fj_filter_groups(structure, args[0], args[3], leaves->items, args[1], args[2]);
    if (groups != NULL && fj_tree_make_static(structure, leaves->items, groups) == 0 &&
        (open = fj_tree_open_leaves(structure, leaves)) != NULL &&
        (list = list_groups(structure, groups)) != NULL) {
        fj_show((PyObject *)structure);
        result = PyTuple_Pack(3, open, structure, list);
    }
    PyMem_Free(groups);
    Py_XDECREF(open);
    Py_XDECREF(list);
    return result;
}

PyObject *
fj_partition_groups(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {
        .usage = "(registry, tree, candidates, expressions, is_leaf)",
        .argument_count = 4,
        .tree_argument = 0,
        .is_leaf_argument = 3,
        .apply = tree_groups};
    return fj_tree_call(module, args, nargs, &function);
}

/* ---- combine ---- */

/* Raises a ValueError: the trees of two indices have a leaf in the same place.  Always -1. */
static int
raise_leaf_in_two_trees(FjStructure *structure, Py_ssize_t leaf, Py_ssize_t first,
                        Py_ssize_t second)
{
    PyObject *path = fj_words_path(structure->registry, fj_path_of_leaf(structure, leaf));
    if (path != NULL) {
        PyErr_Format(PyExc_ValueError, "%U is in tree %zd and in tree %zd", path, first + 1,
                     second + 1);
    }
    Py_XDECREF(path);
    return -1;
}

/* Chooses the leaves of the combined tree.  The buffer holds the leaves of `width` trees, tree
 * after tree; of the leaves in one place, the first that is not None is swapped into the first
 * tree's part of the buffer, which still owns all of them.  0, or -1 with an error: with
 * `strict`, a ValueError if two trees have a leaf in the same place. */
static int
choose_leaves(FjStructure *structure, FjLeafBuf *leaves, Py_ssize_t width, int strict)
{
    Py_ssize_t count = structure->all_leaves;
    PyObject **items = leaves->items;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t found = items[i] == Py_None ? -1 : 0;
        for (Py_ssize_t j = 1; j < width && (strict || found < 0); j++) {
            if (items[j * count + i] == Py_None) {
                continue;
            }
            if (found >= 0) {
                return raise_leaf_in_two_trees(structure, i, found, j);
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
    int strict = args[2] == Py_True;
    return choose_leaves(structure, leaves, PyTuple_GET_SIZE(args[0]), strict) < 0
               ? NULL
               : fj_build_tree(structure, leaves->items);
}

PyObject *
fj_partition_combine(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {.usage = "(registry, trees, is_leaf, strict)",
                                            .argument_count = 3,
                                            .tree_argument = 0,
                                            .is_leaf_argument = 1,
                                            .takes_trees = 1,
                                            .none_is_leaf = 1,
                                            .apply = combine};
    return fj_tree_call(module, args, nargs, &function);
}
