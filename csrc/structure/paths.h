/* The paths of all leaves or nodes of a Structure.  For a single path, see fj_path_of_node and
 * fj_path_of_leaf in structure.h.
 *
 * A *key path* is a list of keys from fj_children_key.  A path as text joins them with dots,
 * like `jax.tree_util.keystr(simple=True, separator=".")`:
 *
 *     f(model, x), the bias of model.layers[2]     ["model", "layers", (2,), "bias"]
 *     flatten({"a": [x]})                          [("a",), (0,)]           "a.0" */
#pragma once

#include "base/common.h"
#include "structure/structure.h"

typedef enum {
    FJ_PATHS_TEXT,  /* of the open leaves, as text */
    FJ_PATHS_KEYS,  /* of the open leaves, as key paths */
    FJ_PATHS_NODES, /* of the nodes, as key paths; leaves without nodes are skipped */
} FjPathsWhat;

/* (P) Collects paths in one walk.  Returns a new list of str or of lists, in node order.  Only
 * FJ_PATHS_TEXT runs Python code: the __str__ of keys. */
PyObject *fj_paths(const FjStructure *structure, FjPathsWhat what);
