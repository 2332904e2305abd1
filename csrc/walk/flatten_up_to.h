/* A tree comes apart as far as a Structure goes: what stands in the places of its leaves. */
#ifndef FJ_FLATTEN_UP_TO_H
#define FJ_FLATTEN_UP_TO_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* Pushes, for each leaf of the Structure, what `tree` has in its place, a leaf or a whole
 * subtree.  0, or -1 with an error, ValueError where the tree is another: it says where, and
 * calls the two trees by `name` and `model`.  Runs Python code: see flatten_up_to.c. */
int fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name,
                     const char *model, FjLeafBuf *leaves);

#endif
