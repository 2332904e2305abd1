/* Methods of Structure for reports and traces.  structure_type.c has their docstrings. */
#pragma once

#include "structure/structure.h"

/* Returns (kind, arity, type or None, detail, key). */
PyObject *fj_structure_describe_node(const FjStructure *structure, uint32_t index,
                                     PyObject *key);

PyObject *fj_structure_lineage(PyObject *structure, PyObject *index);
PyObject *fj_structure_span(PyObject *structure, PyObject *const *path, Py_ssize_t depth);
PyObject *fj_structure_types(PyObject *structure, PyObject *unused); /* (P) */
PyObject *fj_structure_statics(PyObject *structure, PyObject *args);
PyObject *fj_structure_held(PyObject *structure, PyObject *type); /* (P) */

/* (P) */
PyObject *fj_structure_differences(PyObject *structure, PyObject *args);
