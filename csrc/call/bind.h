/* Assigns the arguments of a call to the parameters: f(1) and f(x=1) give the same result.
 *
 * The result is an array with one argument per parameter, in signature order: positional
 * parameters (positional-only ones first), *args, keyword-only parameters, **kwargs.  *args is
 * a tuple and **kwargs a dict.  If one is empty, it is NULL, and so are parameters that the
 * caller omits: as in Equinox, defaults aren't filled in. */
#pragma once

#include "base/common.h"
#include "walk/flatten.h"

#define FJ_REQUIRED 1 /* the parameter needs an argument */

typedef struct {
    PyObject_HEAD PyObject *names; /* tuple of str, interned to find keywords by identity */
    Py_ssize_t num_parameters;
    Py_ssize_t positional_only;
    Py_ssize_t positional; /* number of parameters that can be given by position */
    Py_ssize_t varargs;    /* the parameter *args, or -1 */
    Py_ssize_t varkw;      /* the parameter **kwargs, or -1 */
    PyObject *flag_bytes;  /* bytes, the owner of `flags` */
    char *flags;           /* by parameter: FJ_REQUIRED and the flags in flatten.h */
} FjSignature;

/* The objects that fj_bind creates for *args and **kwargs.  Owned, or NULL. */
typedef struct {
    PyObject *varargs;
    PyObject *varkw;
} FjPackedArgs;

/* Fills `arguments`, one per parameter and all NULL before, with borrowed references.  1, 0 if
 * the arguments don't fit the signature, or -1 with an error.  The caller always drops
 * `packed`.  bind.c lists the Python code that can run. */
int fj_bind(const FjSignature *signature, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames, PyObject **arguments, FjPackedArgs *packed);

/* Returns the arguments of a vectorcall as (args, kwargs).  Can run any Python code. */
PyObject *fj_bind_pack(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
