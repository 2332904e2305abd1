/* Whole trees at once, as in jax.tree_util: their leaves, their paths, a function over them.
 */
#ifndef FJ_TREE_H
#define FJ_TREE_H

#include "common.h"
#include "leafbuf.h"
#include "structure.h"

/* What the functions of this file and of partition.c are called with: (registry, ...). */
typedef PyObject *(*FjTreeFunction)(FjRegistry *registry, PyObject *const *args);

/* The functions of the module; each is METH_FASTCALL.  They run Python code: see tree.c. */
PyObject *fj_tree_leaves(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_paths(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_map(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_from_parts(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* Calls `function` where the arguments are a registry and `count` more; else a TypeError that
 * says `usage`.  An error of the function is given a note of where in the tree it happened. */
PyObject *fj_tree_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                       Py_ssize_t count, const char *usage, FjTreeFunction function);

/* Takes `tree` apart with every leaf an array; `is_leaf` may be None.  NULL with an error. */
FjStructure *fj_tree_take_apart(FjRegistry *registry, PyObject *tree, PyObject *is_leaf,
                                int none_is_leaf, FjLeafBuf *leaves);

/* Takes the first of `trees`, a tuple, apart, and the others as far as it goes: pushes the
 * leaves of one after those of the other.  NULL with an error. */
FjStructure *fj_tree_take_all_apart(FjRegistry *registry, PyObject *trees, PyObject *is_leaf,
                                    int none_is_leaf, FjLeafBuf *leaves);

/* Fixes the leaves whose group is negative: they are no longer given when a tree is built.  0,
 * or -1 with MemoryError. */
int fj_tree_fix(FjStructure *structure, PyObject *const *leaves, const int16_t *groups);

#endif
