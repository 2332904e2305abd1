/* The paths of the leaves of a Structure as text, in the format of
 * `jax.tree_util.keystr(simple=True, separator=".")`: `layers.0.weight`.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_PATHS_H
#define FJ_PATHS_H

#include "base/common.h"
#include "structure/structure.h"

/* (P) The paths of the open leaves, in order: a tuple of str that is cached in the Structure,
 * borrowed; NULL with an error. */
PyObject *fj_paths_open(FjStructure *structure);

/* (P) The paths of all leaves: a new list of str, or NULL with an error. */
PyObject *fj_paths_all(FjStructure *structure);

#endif
