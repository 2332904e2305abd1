/* Paths from the root of a Structure to its nodes: as lists of keys, as text for users, and,
 * for the leaves, as text in the format of `jax.tree_util.keystr(simple=True, separator=".")`:
 * `layers.0.weight`.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_PATHS_H
#define FJ_PATHS_H

#include "base/common.h"
#include "structure/structure.h"

/* (P) The path to a node: a new list of the keys (fj_children_key) from the root.  The
 * Structure may still have nodes that are not closed. */
PyObject *fj_path_of_node(const FjStructure *structure, uint32_t index);

/* (P) The path to a leaf, which is counted from 0 among all leaves: a new list. */
PyObject *fj_path_of_leaf(const FjStructure *structure, Py_ssize_t leaf);

/* (P) The text of a path for users, "`model.layers[2].activation`" or "the root": a new str,
 * or NULL with an error.  Steals `path`, a result of one of the two functions above; NULL is
 * an error that is passed on. */
PyObject *fj_path_text(PyObject *path);

/* (P) The path of the object that a REF node refers to, for users: a new str. */
PyObject *fj_path_text_of_ref(const FjStructure *structure, const FjNode *ref);

/* (P) The paths of the open leaves, in order: a tuple of str that is cached in the Structure,
 * borrowed; NULL with an error. */
PyObject *fj_paths_open(FjStructure *structure);

/* (P) The paths of all leaves: a new list of str, or NULL with an error. */
PyObject *fj_paths_all(FjStructure *structure);

#endif
