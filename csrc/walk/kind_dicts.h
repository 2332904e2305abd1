/* Peeks at dicts and defaultdicts (kinds.h). */
#pragma once

#include "structure/structure.h"

/* Sets `values` to the values of these names in a dict (borrowed), or NULL if absent.  Ignores
 * other keys.  The names are strings or ints.  1, or FJ_NEEDS_PYTHON. */
int fj_peek_names(PyObject *dict, PyObject *names, Py_ssize_t count, PyObject **values);

/* The same by identity alone: these very key objects.  0 if the dict has other keys, or if its
 * order is so different that the search passes more than `passed` names per key. */
int fj_peek_objects(PyObject *dict, PyObject *names, Py_ssize_t count, Py_ssize_t passed,
                    PyObject **values);

/* Sets `children` to the children of a node's dict or defaultdict (borrowed).  1, 0 if the
 * keys differ, FJ_NEEDS_PYTHON, or -1. */
int fj_peek_dict(const FjNode *node, PyObject *dict, PyObject **children);
