/* A tree is put together again from its Structure and its arrays. */
#ifndef FJ_BUILD_H
#define FJ_BUILD_H

#include "base/common.h"
#include "structure/structure.h"

/* A new tree; `arrays` has as many items as the Structure has array leaves, whatever they are.
 * NULL with an error.  Runs Python code: see build.c. */
PyObject *fj_build_tree(FjStructure *structure, PyObject *const *arrays);

/* The same of those that are not fixed.  The caller holds the Structure. */
PyObject *fj_build_open(FjStructure *structure, PyObject *const *given);

/* Some of the leaves of a tree: those of one group. */
typedef struct {
    PyObject *const *leaves;
    const int16_t *groups; /* of each leaf */
    int16_t group;
    PyObject *replace; /* what stands for a leaf of another group */
} FjPart;

static inline PyObject *
fj_part_leaf(const FjPart *part, Py_ssize_t i)
{
    return part->groups[i] == part->group ? part->leaves[i] : part->replace;
}

/* The same of one part of all leaves.  The caller holds them. */
PyObject *fj_build_part(FjStructure *structure, const FjPart *part);

/* The trees of a call, as a new list; in the place of an argument that was not given
 * stands the registry. */
PyObject *fj_build_arguments(FjStructure *structure, PyObject *const *arrays);

#endif
