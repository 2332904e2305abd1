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

/* The part of a tree that has the leaves of one group, for fj_build_part. */
typedef struct {
    PyObject *const *leaves; /* all leaves of the tree */
    const int16_t *groups;   /* the group of each leaf */
    int16_t group;
    PyObject *replace; /* the object that replaces the leaves of all other groups */
} FjPart;

static inline PyObject *
fj_part_leaf(const FjPart *part, Py_ssize_t i)
{
    return part->groups[i] == part->group ? part->leaves[i] : part->replace;
}

/* The tree with the leaves of one group, and `replace` for all others. */
PyObject *fj_build_part(FjStructure *structure, const FjPart *part);

/* The arguments of a call, as a new list with the registry in the place of each argument that
 * was not given. */
PyObject *fj_build_arguments(FjStructure *structure, PyObject *const *arrays);

#endif
