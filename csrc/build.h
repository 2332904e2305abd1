/* A tree is put together again from its Structure and its arrays. */
#ifndef FJ_BUILD_H
#define FJ_BUILD_H

#include "common.h"
#include "structure.h"

/* A new tree; `arrays` has as many items as the Structure has array leaves, whatever they are.
 * NULL with an error.  Runs Python code: see build.c. */
PyObject *fj_build_tree(FjStructure *structure, PyObject *const *arrays);

/* The trees of a call, as a new list; in the place of an argument that was not given
 * stands the registry. */
PyObject *fj_build_slots(FjStructure *structure, PyObject *const *arrays);

#endif
