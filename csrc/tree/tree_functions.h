/* Functions of the module on whole trees: flatten, partition, combine. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* METH_FASTCALL.  They can run Python code: see tree_functions.c. */
PyObject *fj_tree_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_groups(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_from_skeleton(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_partition(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_tree_combine(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* Returns the first of `count` arguments, which must be a Registry, or NULL with a TypeError.
 * `usage` lists the arguments: "(registry, tree)". */
FjRegistry *fj_tree_registry(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                             Py_ssize_t count, const char *usage);
