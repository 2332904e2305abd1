/* Flattens a tree up to the leaves of another tree's Structure. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* (P) Pushes the subtree of `tree` at each leaf of a Structure from fj_flatten_leaves.  If the
 * Structure isn't a prefix of the tree, raises a ValueError with the path that calls the tree
 * `name` and the Structure `model`. */
int fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name,
                     const char *model, FjLeafBuf *leaves);
