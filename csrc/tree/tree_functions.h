/* Functions over whole trees: flatten, and what those of partition.c have in common with it.
 */
#ifndef FJ_TREE_FUNCTIONS_H
#define FJ_TREE_FUNCTIONS_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* The functions of the module; each is METH_FASTCALL.  They may run Python code: see
 * tree_functions.c. */
PyObject *fj_tree_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_from_skeleton(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* A function of the module that flattens one of its arguments and works on the leaves.  Its
 * first argument is the registry; the other arguments are numbered from 0. */
typedef struct {
    const char *usage;    /* all arguments, for error messages: "(registry, tree, ...)" */
    int argument_count;   /* without the registry */
    int tree_argument;    /* number of the argument that is flattened */
    int is_leaf_argument; /* number of `is_leaf`, which is a callable or None; -1 if the
                           * function has no such argument */
    int takes_trees;      /* whether the argument is not a tree but a non-empty tuple of trees:
                           * then the first is flattened, and its leaves are followed, for each
                           * other tree, by the subtrees in the places of these leaves */
    int none_is_leaf;     /* whether None counts as a leaf */
    /* The function itself: a new reference, or NULL with an error.  `args` leaves out the
     * registry. */
    PyObject *(*apply)(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args);
} FjTreeFunction;

/* Checks the arguments of a call, flattens the tree and applies the function.  If that fails,
 * a note with the path is added to the error. */
PyObject *fj_tree_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                       const FjTreeFunction *function);

/* Makes each leaf with a negative group static: the Structure then holds it, and it is no
 * longer given when a tree is built.  0, or -1 with MemoryError. */
int fj_tree_make_static(FjStructure *structure, PyObject *const *leaves,
                        const int16_t *groups);

/* A new list of the open leaves, those that are not static, among `leaves`, which are all
 * leaves of the Structure; NULL with MemoryError. */
PyObject *fj_tree_open_leaves(const FjStructure *structure, const FjLeafBuf *leaves);

#endif
