/* Flattening a tree up to the leaves of a Structure that is a prefix of it. */
#ifndef FJ_FLATTEN_UP_TO_H
#define FJ_FLATTEN_UP_TO_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* Pushes the subtree of `tree` that is in the place of each leaf of the Structure.  0, or -1
 * with an error: a ValueError with the path if the Structure is no prefix of the tree, whose
 * message calls the tree `name` and the Structure `model`.  May run Python code: see
 * flatten_up_to.c. */
int fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name,
                     const char *model, FjLeafBuf *leaves);

#endif
