/* A tree comes apart: its arrays, in order, and its Structure. */
#ifndef FJ_FLATTEN_H
#define FJ_FLATTEN_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* They push the arrays and return a new Structure, or NULL with an error (`arrays` may then
 * hold some; the caller clears it).  They run Python code: see flatten.c. */

/* Of one tree. */
FjStructure *fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays);

/* Of the arguments of a call, one tree for each name; NULL where an argument is not given.
 * The caller holds the arguments. */
FjStructure *fj_flatten_arguments(FjRegistry *registry, PyObject *names,
                                  PyObject *const *arguments, FjLeafBuf *arrays);

/* Of one tree in which every leaf counts as an array, as in jax.tree_util; static fields stay
 * what they are.  A leaf is also what `is_leaf` says (a callable, or NULL), and None where
 * `none_is_leaf`. */
FjStructure *fj_flatten_leaves(FjRegistry *registry, PyObject *tree, PyObject *is_leaf,
                               int none_is_leaf, FjLeafBuf *leaves);

#endif
