/* The paths of all leaves or nodes of a Structure.  Those of one are in structure.h:
 * fj_path_of_node and fj_path_of_leaf.
 *
 * A *key path* is a list of the keys that fj_children_key returns.  A path as text joins them
 * by dots, as `jax.tree_util.keystr(simple=True, separator=".")` does:
 *
 *     f(model, x), the bias of model.layers[2]     ["model", "layers", (2,), "bias"]
 *     flatten({"a": [x]})                          [("a",), (0,)]           "a.0"
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "structure/structure.h"

/* The paths that fj_paths collects. */
typedef enum {
    FJ_PATHS_TEXT,  /* of the open leaves, as text */
    FJ_PATHS_KEYS,  /* of the open leaves, as key paths */
    FJ_PATHS_NODES, /* of the nodes, as key paths: leaves without nodes have none */
} FjPathsWhat;

/* (P) Walks a Structure once and collects paths: a new list of str or of lists, in the order
 * of the nodes; NULL with an error.  Only FJ_PATHS_TEXT runs Python code: the __str__ of
 * keys. */
PyObject *fj_paths(const FjStructure *structure, FjPathsWhat what);
