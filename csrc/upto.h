/* A tree comes apart as far as a Structure goes: what stands in the places of its leaves. */
#ifndef FJ_UPTO_H
#define FJ_UPTO_H

#include "common.h"
#include "leafbuf.h"
#include "structure.h"

/* Pushes, for each leaf of the Structure, what `tree` has in its place, a leaf or a whole
 * subtree.  0, or -1 with an error, ValueError where the tree is another: it says where, and
 * calls the two trees by `name` and `model`.  Runs Python code: see upto.c. */
int fj_upto_flatten(FjStructure *structure, PyObject *tree, const char *name,
                    const char *model, FjLeafBuf *leaves);

#endif
