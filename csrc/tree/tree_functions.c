/* Functions over trees: they flatten, do something with the leaves, and build.
 *
 * As in jax.tree_util, a buffer holds all leaves before anything is done with them.  So a
 * filter that changes the tree meanwhile has no effect on the result.
 *
 * Python code can run in filters and `is_leaf`, where flatten.c, filter.c and build.c say,
 * where the note of an error is made (words.c), and where references are dropped.
 */
#include "tree/tree_functions.h"

#include "structure/words.h"
#include "walk/build.h"
#include "walk/flatten.h"
#include "tree/filter.h"

/* Flattens the tree, or the trees, of a call and pushes the leaves: the Structure, or NULL
 * with an error. */
static FjStructure *
flatten_argument(FjRegistry *registry, PyObject *const *args, const FjTreeFunction *function,
                 FjLeafBuf *leaves)
{
    PyObject *trees = args[function->tree_argument], *tree = trees;
    PyObject *is_leaf =
        function->is_leaf_argument < 0 ? Py_None : args[function->is_leaf_argument];
    if (function->takes_trees) {
        if (!PyTuple_Check(trees) || PyTuple_GET_SIZE(trees) == 0) {
            PyErr_SetString(PyExc_TypeError, "there must be at least one tree");
            return NULL;
        }
        tree = PyTuple_GET_ITEM(trees, 0);
    }
    if (is_leaf != Py_None && !PyCallable_Check(is_leaf)) {
        PyErr_Format(PyExc_TypeError, "`is_leaf` must be a function of a node or None, not %R",
                     is_leaf);
        return NULL;
    }
    FjStructure *structure = fj_flatten_leaves(
        registry, tree, is_leaf == Py_None ? NULL : is_leaf, function->none_is_leaf, leaves);
    if (structure == NULL || !function->takes_trees) {
        return structure;
    }
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(trees); i++) {
        char name[32];
        PyOS_snprintf(name, sizeof(name), "tree %zd", i + 1);
        if (fj_flatten_up_to(structure, PyTuple_GET_ITEM(trees, i), name, "tree 1", leaves) <
            0) {
            Py_DECREF(structure);
            return NULL;
        }
    }
    return structure;
}

PyObject *
fj_tree_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
             const FjTreeFunction *function)
{
    FjState *state = PyModule_GetState(module);
    if (nargs != function->argument_count + 1 || Py_TYPE(args[0]) != state->registry) {
        PyErr_Format(PyExc_TypeError, "the arguments must be %s", function->usage);
        return NULL;
    }
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    FjStructure *structure =
        flatten_argument((FjRegistry *)args[0], args + 1, function, &leaves);
    PyObject *result =
        structure == NULL ? NULL : function->apply(structure, &leaves, args + 1);
    if (result == NULL) {
        fj_words_note_context((FjRegistry *)args[0]);
    }
    Py_XDECREF(structure);
    fj_leafbuf_clear(&leaves);
    return result;
}

int
fj_tree_make_static(FjStructure *structure, PyObject *const *leaves, const int16_t *groups)
{
    Py_ssize_t count = structure->all_leaves, given = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        given += groups[i] >= 0;
    }
    if (given == count) {
        return 0;
    }
    structure->static_leaves = PyMem_New(PyObject *, (size_t)count);
    if (structure->static_leaves == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        structure->static_leaves[i] = groups[i] >= 0 ? NULL : Py_NewRef(leaves[i]);
    }
    structure->open_leaves = given;
    return 0;
}

PyObject *
fj_tree_open_leaves(const FjStructure *structure, const FjLeafBuf *leaves)
{
    PyObject *list = PyList_New(structure->open_leaves);
    for (Py_ssize_t i = 0, given = 0; list != NULL && i < structure->all_leaves; i++) {
        if (fj_structure_static_leaf(structure, i) == NULL) {
            PyList_SET_ITEM(list, given++, Py_NewRef(leaves->items[i]));
        }
    }
    return list;
}

/* ---- the functions ---- */

/* Makes each leaf static that the expression does not take; `args` are those of `flatten`.  0,
 * or -1 with an error. */
static int
make_others_static(FjStructure *structure, const FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *no_expressions = PyTuple_New(0);
    int16_t *groups = no_expressions == NULL
                          ? NULL
                          : fj_filter_groups(structure, args[0], args[2], leaves->items,
                                             args[1], no_expressions);
    int result = groups == NULL ? -1 : fj_tree_make_static(structure, leaves->items, groups);
    PyMem_Free(groups);
    Py_XDECREF(no_expressions);
    return result;
}

/* (tree, expression, is_leaf) */
static PyObject *
flatten(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    if (args[1] != Py_True && make_others_static(structure, leaves, args) < 0) {
        return NULL;
    }
    PyObject *list = fj_tree_open_leaves(structure, leaves);
    fj_show((PyObject *)structure);
    PyObject *result = list == NULL ? NULL : PyTuple_Pack(2, list, structure);
    Py_XDECREF(list);
    return result;
}

PyObject *
fj_tree_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {.usage = "(registry, tree, expression, is_leaf)",
                                            .argument_count = 3,
                                            .tree_argument = 0,
                                            .is_leaf_argument = 2,
                                            .apply = flatten};
    return fj_tree_call(module, args, nargs, &function);
}

/* (hole, skeleton, statics): the Structure of `skeleton`.  A leaf for which the list `statics`
 * has an item other than `hole` is static, with that item as its value. */
static PyObject *
from_skeleton(FjStructure *structure, FjLeafBuf *Py_UNUSED(leaves), PyObject *const *args)
{
    PyObject *hole = args[0], *statics = args[2];
    if (statics == Py_None) {
        fj_show((PyObject *)structure);
        return Py_NewRef((PyObject *)structure);
    }
    PyObject *items = PyList_Check(statics) ? PyList_AsTuple(statics) : PyTuple_New(0);
    int16_t *groups = PyMem_New(int16_t, (size_t)structure->all_leaves + 1);
    int failed = 1;
    if (items == NULL || groups == NULL) {
        PyErr_NoMemory();
    }
    else if (!PyList_Check(statics) || PyTuple_GET_SIZE(items) != structure->all_leaves) {
        PyErr_SetString(PyExc_ValueError,
                        "statics must be None or a list with an item for each leaf");
    }
    else {
        for (Py_ssize_t i = 0; i < structure->all_leaves; i++) {
            groups[i] = PyTuple_GET_ITEM(items, i) == hole ? 0 : -1;
        }
        failed = fj_tree_make_static(structure, ((PyTupleObject *)items)->ob_item, groups);
    }
    PyMem_Free(groups);
    Py_XDECREF(items);
    if (failed) {
        return NULL;
    }
    fj_show((PyObject *)structure);
    return Py_NewRef((PyObject *)structure);
}

PyObject *
fj_tree_from_skeleton(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {.usage = "(registry, hole, skeleton, statics)",
                                            .argument_count = 3,
                                            .tree_argument = 1,
                                            .is_leaf_argument = -1,
                                            .apply = from_skeleton};
    return fj_tree_call(module, args, nargs, &function);
}
