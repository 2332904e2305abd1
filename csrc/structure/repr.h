/* The repr of a Structure: `Structure({'a': *, 'b': [*, 1, ... 98 more]})`. */
#ifndef FJ_REPR_H
#define FJ_REPR_H

#include "base/common.h"
#include "structure/structure.h"

/* A new str, in which a star stands for each open leaf.  Large Structures are abbreviated.
 * Runs Python code: the reprs of keys and static values, see repr.c. */
PyObject *fj_structure_repr(PyObject *structure);

#endif
