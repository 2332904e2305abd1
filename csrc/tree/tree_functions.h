/* Whole trees at once, as in jax.tree_util: their leaves, their paths, a function over them.
 */
#ifndef FJ_TREE_FUNCTIONS_H
#define FJ_TREE_FUNCTIONS_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* The functions of the module; each is METH_FASTCALL.  They run Python code: see
 * tree_functions.c. */
PyObject *fj_tree_leaves(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_paths(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_map(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_from_parts(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* A function of the module that takes a tree apart and looks at it. */
typedef struct {
    const char *usage; /* its arguments, "(registry, ...)", of which there are ... */
    int count;   /* ... so many after the registry; and which of them, from 0 on, is... */
    int tree;    /* ... the tree, */
    int is_leaf; /* ... `is_leaf` or None; -1 if there is none */
    int all;     /* the tree is a tuple of trees: the leaves of the first are followed by
                  * what the others have in their places */
    int none_is_leaf;
    /* What it does; `args` are those after the registry. */
    PyObject *(*function)(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args);
} FjTreeUse;

/* Does it.  An error is given a note of where in the tree it happened. */
PyObject *fj_tree_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                       const FjTreeUse *use);

/* Fixes the leaves whose group is negative: they are no longer given when a tree is built.  0,
 * or -1 with MemoryError. */
int fj_tree_make_static(FjStructure *structure, PyObject *const *leaves,
                        const int16_t *groups);

#endif
