/* Functions over trees: apart, something with the leaves, and together again.
 *
 * The leaves are all held, in a buffer of ours, before anything is done with them, as in
 * jax.tree_util: what the user's functions do to the tree meanwhile changes nothing.
 *
 * Python code can run in the user's functions, filters and `is_leaf`, in what flatten.c,
 * flatten_up_to.c, filter.c and build.c say, and where references are dropped.
 */
#include "tree/tree_functions.h"

#include "walk/build.h"
#include "walk/flatten.h"
#include "base/scratch.h"
#include "structure/paths.h"
#include "tree/filter.h"
#include "walk/flatten_up_to.h"

/* With every leaf an array.  NULL with an error. */
static FjStructure *
take_apart(FjRegistry *registry, PyObject *const *args, const FjTreeUse *use,
           FjLeafBuf *leaves)
{
    PyObject *tree = args[use->tree];
    PyObject *is_leaf = use->is_leaf < 0 ? Py_None : args[use->is_leaf];
    if (use->all && (!PyTuple_Check(tree) || PyTuple_GET_SIZE(tree) == 0)) {
        PyErr_SetString(PyExc_TypeError, "the trees are a tuple of at least one");
        return NULL;
    }
    FjStructure *structure =
        fj_flatten_leaves(registry, use->all ? PyTuple_GET_ITEM(tree, 0) : tree,
                          is_leaf == Py_None ? NULL : is_leaf, use->none_is_leaf, leaves);
    for (Py_ssize_t i = 1; use->all && structure != NULL && i < PyTuple_GET_SIZE(tree); i++) {
        char name[32];
        PyOS_snprintf(name, sizeof(name), "tree %zd", i + 1);
        if (fj_flatten_up_to(structure, PyTuple_GET_ITEM(tree, i), name, "tree 1", leaves) <
            0) {
            Py_CLEAR(structure);
        }
    }
    return structure;
}

PyObject *
fj_tree_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs, const FjTreeUse *use)
{
    FjState *state = PyModule_GetState(module);
    if (nargs != use->count + 1 || Py_TYPE(args[0]) != state->registry) {
        PyErr_Format(PyExc_TypeError, "this takes %s", use->usage);
        return NULL;
    }
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = take_apart((FjRegistry *)args[0], args + 1, use, &leaves);
    PyObject *result = structure == NULL ? NULL : use->function(structure, &leaves, args + 1);
    if (result == NULL) {
        fj_structure_note_error_context();
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

static PyObject *
leaves_of(FjStructure *Py_UNUSED(structure), FjLeafBuf *leaves,
          PyObject *const *Py_UNUSED(args))
{
    return fj_leafbuf_as_list(leaves);
}

PyObject *
fj_tree_leaves(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeUse use = {"(registry, tree, is_leaf)", 2, 0, 1, 0, 0, leaves_of};
    return fj_tree_call(module, args, nargs, &use);
}

static PyObject *
paths_of(FjStructure *structure, FjLeafBuf *Py_UNUSED(leaves),
         PyObject *const *Py_UNUSED(args))
{
    return fj_paths_all(structure);
}

PyObject *
fj_tree_paths(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeUse use = {"(registry, tree, is_leaf)", 2, 0, 1, 0, 0, paths_of};
    return fj_tree_call(module, args, nargs, &use);
}

#define ROW_INLINE 9

/* What `function` makes of each row of leaves; the rows are columns of `leaves`, `count` long.
 */
static int
map_rows(PyObject *function, const FjLeafBuf *leaves, Py_ssize_t count, Py_ssize_t width,
         FjLeafBuf *results)
{
    PyObject *room[ROW_INLINE];
    PyObject **row = fj_scratch_new(room, ROW_INLINE, width + 1);
    int result = 0;
    if (row == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; result == 0 && i < count; i++) {
        for (Py_ssize_t j = 0; j < width; j++) {
            row[j + 1] = leaves->items[j * count + i];
        }
        result = fj_leafbuf_take(
            results,
            PyObject_Vectorcall(function, row + 1,
                                (size_t)width | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL));
    }
    fj_scratch_free(row, room);
    return result;
}

/* (function, trees, is_leaf) */
static PyObject *
map_trees(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf results;
    fj_leafbuf_init(&results, room, FJ_LEAFBUF_FEW);
    Py_ssize_t width = PyTuple_GET_SIZE(args[1]);
    int failed = map_rows(args[0], leaves, structure->all_leaves, width, &results);
    PyObject *tree = failed ? NULL : fj_build_tree(structure, results.items);
    fj_leafbuf_clear(&results);
    return tree;
}

PyObject *
fj_tree_map(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeUse use = {
        "(registry, function, trees, is_leaf)", 3, 1, 2, 1, 0, map_trees};
    return fj_tree_call(module, args, nargs, &use);
}

/* The leaves that are given, as a new list. */
static PyObject *
open_leaves_of(const FjStructure *structure, const FjLeafBuf *leaves)
{
    PyObject *list = PyList_New(structure->open_leaves);
    for (Py_ssize_t i = 0, given = 0; list != NULL && i < structure->all_leaves; i++) {
        if (structure->static_leaves == NULL || structure->static_leaves[i] == NULL) {
            PyList_SET_ITEM(list, given++, Py_NewRef(leaves->items[i]));
        }
    }
    return list;
}

/* Fixes the leaves that a expression does not take.  0, or -1 with an error. */
static int
make_others_static(FjStructure *structure, const FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *no_expressions = PyTuple_New(0);
    int16_t *groups = PyMem_New(int16_t, (size_t)structure->all_leaves + 1);
    int result = -1;
    if (groups == NULL) {
        PyErr_NoMemory();
    }
    else if (no_expressions != NULL &&
             fj_filter_groups(structure, args[0], args[2], leaves->items, args[1],
                              no_expressions, groups) == 0) {
        result = fj_tree_make_static(structure, leaves->items, groups);
    }
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
    PyObject *list = open_leaves_of(structure, leaves);
    PyObject *result = list == NULL ? NULL : PyTuple_Pack(2, list, structure);
    Py_XDECREF(list);
    return result;
}

PyObject *
fj_tree_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeUse use = {
        "(registry, tree, expression, is_leaf)", 3, 0, 2, 0, 0, flatten};
    return fj_tree_call(module, args, nargs, &use);
}

/* (hole, skeleton, statics) */
static PyObject *
from_parts(FjStructure *structure, FjLeafBuf *Py_UNUSED(leaves), PyObject *const *args)
{
    PyObject *hole = args[0], *statics = args[2];
    if (statics == Py_None) {
        return Py_NewRef((PyObject *)structure);
    }
    if (!PyList_Check(statics) || PyList_GET_SIZE(statics) != structure->all_leaves) {
        PyErr_SetString(PyExc_ValueError, "statics are None, or a list of as many as leaves");
        return NULL;
    }
    int16_t *groups = PyMem_New(int16_t, (size_t)structure->all_leaves + 1);
    if (groups == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < structure->all_leaves; i++) {
        groups[i] = PyList_GET_ITEM(statics, i) == hole ? 0 : -1;
    }
    int failed = fj_tree_make_static(structure, ((PyListObject *)statics)->ob_item, groups);
    PyMem_Free(groups);
    return failed ? NULL : Py_NewRef((PyObject *)structure);
}

PyObject *
fj_tree_from_parts(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeUse use = {
        "(registry, hole, skeleton, statics)", 3, 1, -1, 0, 0, from_parts};
    return fj_tree_call(module, args, nargs, &use);
}
