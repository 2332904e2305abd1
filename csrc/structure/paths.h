/* The paths of all open leaves of a Structure.  For a single path, see fj_path_of_node and
 * fj_structure_leaf in structure.h.
 *
 * A *key path* is a list of keys from fj_children_key.  A path as text joins them with dots,
 * like `jax.tree_util.keystr(simple=True, separator=".")`:
 *
 *     f(model, x), the bias of model.layers[2]     ["model", "layers", (2,), "bias"]
 *     flatten({"a": [x]})                          [("a",), (0,)]           "a.0" */
#pragma once

#include "base/common.h"
#include "structure/structure.h"

/* (P) Returns a new list of the paths, in node order: of str if `as_text`, otherwise of key
 * paths.  Only text runs Python code: the __str__ of keys. */
PyObject *fj_paths(const FjStructure *structure, int as_text);
