/* Splitting a tree into parts by filters, and combining the parts again. */
#ifndef FJ_PARTITION_H
#define FJ_PARTITION_H

#include "base/common.h"

/* The functions of the module; each is METH_FASTCALL.  They may run Python code: see
 * partition.c. */
PyObject *fj_partition(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_partition_mask(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_partition_groups(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_partition_combine(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#endif
