/* Flattening a tree into its arrays, in order, and its Structure. */
#ifndef FJ_FLATTEN_H
#define FJ_FLATTEN_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* These functions push the arrays and return a new Structure, or NULL with an error; `arrays`
 * may then hold some arrays, which the caller clears.  They may run Python code: see
 * flatten.c. */

/* Flattens one tree. */
FjStructure *fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays);

#define FJ_STATIC_ARGUMENT 2 /* the argument of a parameter is a static, and is not walked */
#define FJ_TRACED_ARGUMENT 4 /* leaves in it are traced as the Registry's `traced_in` says */
#define FJ_CHOSEN_ARGUMENT 8 /* the same, of the leaves that an FjChoose takes */
#define FJ_ASKED_ARGUMENT                                                                     \
    16 /* with CHOSEN: what it takes may depend on more than the structure */

/* (P) Which leaves of the argument of parameter `i` are chosen: a new bytes object with a byte
 * for each leaf, or NULL with an error. */
typedef PyObject *(*FjChoose)(void *context, Py_ssize_t i, PyObject *argument);

/* Flattens the arguments of a call, one for each parameter in `names`; NULL stands for an
 * argument that is not given.  `flags`, which may be NULL, has a byte for each parameter: see
 * above.  The caller holds the arguments.  `objects`, which is empty, receives the numbered
 * objects in their order (Sharing in structure.h).  `choose`, which gets `context`, may be
 * NULL if no flag is FJ_CHOSEN_ARGUMENT. */
FjStructure *fj_flatten_arguments(FjRegistry *registry, PyObject *names, const char *flags,
                                  PyObject *const *arguments, FjChoose choose, void *context,
                                  FjLeafBuf *arrays, FjLeafBuf *objects);

/* Flattens one tree as jax.tree_util does: every leaf counts as an array; static fields remain
 * static.  An object is also a leaf if `is_leaf`, a callable or NULL, returns true for it, and
 * None is a leaf if `none_is_leaf` is set.  The Structure is hidden (fj_hide), since the
 * caller may still make leaves static; it is shown before Python gets it. */
FjStructure *fj_flatten_leaves(FjRegistry *registry, PyObject *tree, PyObject *is_leaf,
                               int none_is_leaf, FjLeafBuf *leaves);

/* Flattens a tree up to the leaves of a Structure that fj_flatten_leaves returned and that is
 * a prefix of it: pushes the subtree of `tree` that is in the place of each leaf.  0, or -1
 * with an error: a ValueError with the path if the Structure is no prefix of the tree, whose
 * message calls the tree `name` and the Structure `model`. */
int fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name,
                     const char *model, FjLeafBuf *leaves);

/* (P) Walks trees as fj_flatten_arguments does, and compares them with the nodes of a
 * Structure from `first` on; pushes their arrays and numbered objects.  `trees` are NULL where
 * there is none.  1, 0 if they differ, or -1 with an error; the buffers may then hold some.
 * In compare.c. */
int fj_flatten_compare(FjStructure *structure, const FjNode *first, PyObject *const *trees,
                       Py_ssize_t count, FjLeafBuf *arrays, FjLeafBuf *objects);

#endif
