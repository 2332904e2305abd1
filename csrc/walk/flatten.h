/* Flattens a tree into its arrays, in order, and its Structure. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* These functions push the arrays and return a new Structure.  After an error, the caller
 * clears `arrays`.  They can run Python code: see flatten.c. */

FjStructure *fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays);

#define FJ_STATIC_ARGUMENT 2 /* a whole static, which is not walked */
#define FJ_TRACED_ARGUMENT 4 /* traces the leaves that the Registry's `traced_in` names */
#define FJ_CHOSEN_ARGUMENT 8 /* the same, for the leaves that an FjChoose selects */

/* (P) Selects leaves of parameter `i`.  Returns a bytes object with a byte per leaf, which
 * must depend only on the argument's structure: hits don't ask. */
typedef PyObject *(*FjChoose)(void *context, Py_ssize_t i, PyObject *argument);

/* Flattens the arguments of a call, one per parameter in `names`: an absent argument is NULL.
 * `flags` has a byte per parameter (see above), or is NULL.  The caller holds the arguments.
 * `objects`, initially empty, receives the numbered objects in order (Sharing in structure.h).
 * `choose` is called with `context` for FJ_CHOSEN_ARGUMENT. */
FjStructure *fj_flatten_arguments(FjRegistry *registry, PyObject *names, const char *flags,
                                  PyObject *const *arguments, FjChoose choose, void *context,
                                  FjLeafBuf *arrays, FjLeafBuf *objects);

/* Flattens a tree as jax.tree_util does: every leaf counts as an array, and static fields stay
 * static.  An object is also a leaf if `is_leaf`, a callable or NULL, returns true for it;
 * None is a leaf if `none_is_leaf`.  The Structure is hidden (fj_hide) because the caller can
 * still make leaves static.  The caller shows it before Python gets it. */
FjStructure *fj_flatten_leaves(FjRegistry *registry, PyObject *tree, PyObject *is_leaf,
                               int none_is_leaf, FjLeafBuf *leaves);
