/* Functions over trees: apart, something with the leaves, and together again.
 *
 * The leaves are all held, in a buffer of ours, before anything is done with them, as in
 * jax.tree_util: what the user's functions do to the tree meanwhile changes nothing.
 *
 * Python code can run in the user's functions, filters and `is_leaf`, in what flatten.c,
 * upto.c, select.c and build.c say, and where references are dropped.
 */
#include "tree.h"

#include "build.h"
#include "flatten.h"
#include "paths.h"
#include "select.h"
#include "upto.h"

PyObject *
fj_tree_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs, Py_ssize_t count,
             const char *usage, FjTreeFunction function)
{
    FjState *state = PyModule_GetState(module);
    if (nargs != count + 1 || Py_TYPE(args[0]) != state->registry) {
        PyErr_Format(PyExc_TypeError, "this takes %s", usage);
        return NULL;
    }
    PyObject *result = function((FjRegistry *)args[0], args + 1);
    if (result == NULL) {
        fj_structure_note_blame();
    }
    return result;
}

FjStructure *
fj_tree_take_apart(FjRegistry *registry, PyObject *tree, PyObject *is_leaf, int none_is_leaf,
                   FjLeafBuf *leaves)
{
    return fj_flatten_leaves(registry, tree, is_leaf == Py_None ? NULL : is_leaf, none_is_leaf,
                             leaves);
}

FjStructure *
fj_tree_take_all_apart(FjRegistry *registry, PyObject *trees, PyObject *is_leaf,
                       int none_is_leaf, FjLeafBuf *leaves)
{
    if (!PyTuple_Check(trees) || PyTuple_GET_SIZE(trees) == 0) {
        PyErr_SetString(PyExc_TypeError, "the trees are a tuple of at least one");
        return NULL;
    }
    FjStructure *structure = fj_tree_take_apart(registry, PyTuple_GET_ITEM(trees, 0), is_leaf,
                                                none_is_leaf, leaves);
    for (Py_ssize_t i = 1; structure != NULL && i < PyTuple_GET_SIZE(trees); i++) {
        char name[32];
        PyOS_snprintf(name, sizeof(name), "tree %zd", i + 1);
        if (fj_upto_flatten(structure, PyTuple_GET_ITEM(trees, i), name, "tree 1", leaves) <
            0) {
            Py_CLEAR(structure);
        }
    }
    return structure;
}

int
fj_tree_fix(FjStructure *structure, PyObject *const *leaves, const int16_t *groups)
{
    Py_ssize_t count = structure->leaves, given = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        given += groups[i] >= 0;
    }
    if (given == count) {
        return 0;
    }
    structure->fixed = PyMem_New(PyObject *, (size_t)count);
    if (structure->fixed == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        structure->fixed[i] = groups[i] >= 0 ? NULL : Py_NewRef(leaves[i]);
    }
    structure->arrays = given;
    return 0;
}

/* (tree, is_leaf) */
static PyObject *
leaves_of(FjRegistry *registry, PyObject *const *args)
{
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_tree_take_apart(registry, args[0], args[1], 0, &leaves);
    PyObject *list = structure == NULL ? NULL : fj_leafbuf_as_list(&leaves);
    Py_XDECREF(structure);
    fj_leafbuf_clear(&leaves);
    return list;
}

PyObject *
fj_tree_leaves(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    return fj_tree_call(module, args, nargs, 2, "(registry, tree, is_leaf)", leaves_of);
}

/* (tree, is_leaf) */
static PyObject *
paths_of(FjRegistry *registry, PyObject *const *args)
{
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_tree_take_apart(registry, args[0], args[1], 0, &leaves);
    PyObject *paths = structure == NULL ? NULL : fj_paths_all(structure);
    Py_XDECREF(structure);
    fj_leafbuf_clear(&leaves);
    return paths;
}

PyObject *
fj_tree_paths(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    return fj_tree_call(module, args, nargs, 2, "(registry, tree, is_leaf)", paths_of);
}

/* What `function` makes of each row of leaves; the rows are columns of `leaves`, `count` long.
 */
static int
map_rows(PyObject *function, const FjLeafBuf *leaves, Py_ssize_t count, Py_ssize_t width,
         FjLeafBuf *results)
{
    PyObject *few[9];
    PyObject **row = width < 9 ? few : PyMem_New(PyObject *, (size_t)width + 1);
    int result = 0;
    if (row == NULL) {
        PyErr_NoMemory();
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
    if (row != few) {
        PyMem_Free(row);
    }
    return result;
}

/* (function, trees, is_leaf) */
static PyObject *
map_trees(FjRegistry *registry, PyObject *const *args)
{
    PyObject *tree = NULL;
    PyObject *room[FJ_LEAFBUF_FEW], *more_room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves, results;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    fj_leafbuf_init(&results, more_room, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_tree_take_all_apart(registry, args[1], args[2], 0, &leaves);
    if (structure != NULL && map_rows(args[0], &leaves, structure->leaves,
                                      PyTuple_GET_SIZE(args[1]), &results) == 0) {
        tree = fj_build_tree(structure, results.items);
    }
    Py_XDECREF(structure);
    fj_leafbuf_clear(&leaves);
    fj_leafbuf_clear(&results);
    return tree;
}

PyObject *
fj_tree_map(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    return fj_tree_call(module, args, nargs, 3, "(registry, function, trees, is_leaf)",
                        map_trees);
}

/* The leaves that are given, as a new list. */
static PyObject *
given_leaves(const FjStructure *structure, const FjLeafBuf *leaves)
{
    PyObject *list = PyList_New(structure->arrays);
    for (Py_ssize_t i = 0, given = 0; list != NULL && i < structure->leaves; i++) {
        if (structure->fixed == NULL || structure->fixed[i] == NULL) {
            PyList_SET_ITEM(list, given++, Py_NewRef(leaves->items[i]));
        }
    }
    return list;
}

/* (tree, program, is_leaf) */
static PyObject *
flatten(FjRegistry *registry, PyObject *const *args)
{
    PyObject *list = NULL, *result = NULL, *no_programs = PyTuple_New(0);
    int16_t *groups = NULL;
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_tree_take_apart(registry, args[0], args[2], 0, &leaves);
    if (structure == NULL || no_programs == NULL) {
        goto done;
    }
    if (args[1] != Py_True) {
        groups = PyMem_New(int16_t, (size_t)structure->leaves + 1);
        if (groups == NULL) {
            PyErr_NoMemory();
            goto done;
        }
        if (fj_select_groups(structure, args[0], args[2], leaves.items, args[1], no_programs,
                             groups) < 0 ||
            fj_tree_fix(structure, leaves.items, groups) < 0) {
            goto done;
        }
    }
    list = given_leaves(structure, &leaves);
    result = list == NULL ? NULL : PyTuple_Pack(2, list, structure);
done:
    PyMem_Free(groups);
    Py_XDECREF(no_programs);
    Py_XDECREF(list);
    Py_XDECREF(structure);
    fj_leafbuf_clear(&leaves);
    return result;
}

PyObject *
fj_tree_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    return fj_tree_call(module, args, nargs, 3, "(registry, tree, program, is_leaf)", flatten);
}

/* (hole, skeleton, statics) */
static PyObject *
from_parts(FjRegistry *registry, PyObject *const *args)
{
    PyObject *hole = args[0], *statics = args[2];
    PyObject *result = NULL;
    int16_t *groups = NULL;
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = NULL;
    if (statics != Py_None && !PyList_Check(statics)) {
        PyErr_SetString(PyExc_TypeError, "statics are a list or None");
        return NULL;
    }
    structure = fj_flatten_leaves(registry, args[1], NULL, 0, &leaves);
    if (structure == NULL) {
        goto done;
    }
    if (statics != Py_None) {
        groups = PyMem_New(int16_t, (size_t)structure->leaves + 1);
        if (groups == NULL) {
            PyErr_NoMemory();
            goto done;
        }
        if (PyList_GET_SIZE(statics) != structure->leaves) {
            PyErr_SetString(PyExc_ValueError, "as many statics as leaves");
            goto done;
        }
        for (Py_ssize_t i = 0; i < structure->leaves; i++) {
            groups[i] = PyList_GET_ITEM(statics, i) == hole ? 0 : -1;
        }
        if (fj_tree_fix(structure, ((PyListObject *)statics)->ob_item, groups) < 0) {
            goto done;
        }
    }
    result = Py_NewRef((PyObject *)structure);
done:
    PyMem_Free(groups);
    Py_XDECREF(structure);
    fj_leafbuf_clear(&leaves);
    return result;
}

PyObject *
fj_tree_from_parts(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    return fj_tree_call(module, args, nargs, 3, "(registry, hole, skeleton, statics)",
                        from_parts);
}
