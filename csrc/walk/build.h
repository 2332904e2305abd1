/* Building (unflattening) a tree from its Structure and its arrays. */
#ifndef FJ_BUILD_H
#define FJ_BUILD_H

#include "base/common.h"
#include "structure/structure.h"

/* These functions return a new reference, or NULL with an error, and may run Python code: see
 * build.c.  The caller holds the Structure and the leaves. */

/* The tree with these arrays, one for each array leaf of the Structure; they may be any
 * objects. */
PyObject *fj_build_tree(FjStructure *structure, PyObject *const *arrays);

/* The tree with these leaves in the places of the open leaves; static leaves are taken from
 * the Structure. */
PyObject *fj_build_open(FjStructure *structure, PyObject *const *given);

/* The arguments of a call, as a new list with the registry in the place of each argument that
 * was not given. */
PyObject *fj_build_arguments(FjStructure *structure, PyObject *const *arrays);

#endif
