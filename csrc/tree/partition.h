/* A tree in several parts, and together again. */
#ifndef FJ_PARTITION_H
#define FJ_PARTITION_H

#include "base/common.h"

/* The functions of the module; each is METH_FASTCALL.  They run Python code: see partition.c.
 */
PyObject *fj_partition(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_partition_dict(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *fj_partition_combine(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* The tree of a Structure with the leaves of these dicts from path to leaf. */
PyObject *fj_partition_combine_dicts(PyObject *structure, PyObject *const *groups,
                                     Py_ssize_t count);

#endif
