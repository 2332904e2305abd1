/* The paths of all leaves of a Structure, as `jax.tree_util.keystr(simple=True,
 * separator=".")` writes them: `layers.0.weight`.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_PATHS_H
#define FJ_PATHS_H

#include "base/common.h"
#include "structure/structure.h"

/* (P) Of the leaves that are given when a tree is built, in order: a tuple of str that the
 * Structure keeps, borrowed; NULL with an error. */
PyObject *fj_paths_open(FjStructure *structure);

/* (P) Of all leaves: a new list of str. */
PyObject *fj_paths_all(FjStructure *structure);

#endif
