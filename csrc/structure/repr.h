/* The repr of a Structure: `Structure({'a': *, 'b': [*, 1, ... 98 more]})`. */
#ifndef FJ_REPR_H
#define FJ_REPR_H

#include "base/common.h"
#include "structure/structure.h"

/* A star stands for a leaf that is given when a tree is built.  Long ones are abbreviated.
 * Runs Python code: the reprs of keys and statics. */
PyObject *fj_structure_repr(PyObject *structure);

#endif
