/* Assigning the arguments of a call to the parameters, so that f(1) and f(x=1) look the same.
 *
 * The result is an array with one argument for each parameter, in the order of the signature:
 * positional parameters (positional-only ones first), *args, keyword-only parameters,
 * **kwargs.  The argument of *args is a tuple and that of **kwargs a dict.  The argument is
 * NULL if *args or **kwargs is empty, and for any parameter that the caller did not give: as
 * in Equinox, defaults are not filled in.
 */
#pragma once

#include "base/common.h"
#include "walk/flatten.h"

#define FJ_REQUIRED 1 /* the argument of a parameter may not be missing */

typedef struct {
    PyObject_HEAD PyObject *names; /* tuple of str, by parameter; interned, so that keywords
                                    * are found by identity */
    Py_ssize_t num_parameters;
    Py_ssize_t positional_only;
    Py_ssize_t positional; /* how many can be given by position */
    Py_ssize_t varargs;    /* the parameter *args, or -1 */
    Py_ssize_t varkw;      /* the parameter **kwargs, or -1 */
    PyObject *flag_bytes;  /* bytes, which have the flags */
    char *flags;           /* by parameter: FJ_REQUIRED and those of flatten.h */
} FjSignature;

/* The objects that fj_bind creates for *args and **kwargs.  Owned, or NULL. */
typedef struct {
    PyObject *varargs;
    PyObject *varkw;
} FjPackedArgs;

/* Fills `arguments`, one for each parameter and all NULL before, with borrowed references.  1,
 * 0 if the arguments do not fit the signature, or -1 with an error.  The caller releases
 * `packed` in any case.  For the Python code that can run see bind.c. */
int fj_bind(const FjSignature *signature, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames, PyObject **arguments, FjPackedArgs *packed);

/* The arguments of a vectorcall as (args, kwargs), a new tuple of a tuple and a dict; NULL
 * with an error.  Any Python code may run. */
PyObject *fj_bind_pack(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

static inline void
fj_bind_release(FjPackedArgs *packed)
{
    Py_CLEAR(packed->varargs);
    Py_CLEAR(packed->varkw);
}
