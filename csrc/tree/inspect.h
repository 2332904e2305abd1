/* What reports, warnings and traces ask of a Structure: methods of the Python type.  Their
 * docstrings are in structure_type.c.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "structure/structure.h"

/* (kind, arity, type or None, detail, key): a new reference, or NULL with an error. */
PyObject *fj_structure_describe_node(const FjStructure *structure, uint32_t index,
                                     PyObject *key);

PyObject *fj_structure_lineage(PyObject *structure, PyObject *index);
PyObject *fj_structure_span(PyObject *structure, PyObject *const *path, Py_ssize_t depth);
PyObject *fj_structure_types(PyObject *structure, PyObject *unused); /* (P) */
PyObject *fj_structure_statics(PyObject *structure, PyObject *args);
PyObject *fj_structure_held(PyObject *structure, PyObject *type); /* (P) */

/* (P) Compares two Structures node by node. */
PyObject *fj_structure_differences(PyObject *structure, PyObject *args);
