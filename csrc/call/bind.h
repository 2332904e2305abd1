/* The arguments of a call become arguments, one for each parameter, so that f(1) and f(x=1)
 * look the same.  Defaults are not filled in: an argument that is not given stays absent, as
 * in Equinox.
 *
 * Parameters stand in the order of the signature: positional ones (positional-only first),
 * *args, keyword-only ones, **kwargs.  *args is one slot holding a tuple, **kwargs one holding
 * a dict; both are absent when empty.
 */
#ifndef FJ_BIND_H
#define FJ_BIND_H

#include "base/common.h"

typedef struct {
    PyObject_HEAD PyObject *names; /* tuple of interned str, one for each parameter */
    Py_ssize_t num_parameters;
    Py_ssize_t positional_only;
    Py_ssize_t positional;
    Py_ssize_t varargs; /* parameter of *args, -1 without */
    Py_ssize_t varkw;   /* parameter of **kwargs, -1 without */
    char *required;     /* one byte a parameter */
} FjSignature;

extern PyType_Spec fj_signature_spec;

/* What fj_bind makes itself: *args and **kwargs.  NULL where there are none. */
typedef struct {
    PyObject *varargs;
    PyObject *varkw;
} FjPackedArgs;

/* Fills `arguments` (as many as the signature has, all NULL before) with borrowed references.
 * 1; 0 when the arguments do not fit; -1 with an error.  Runs no Python code but what the
 * garbage collector may, and the __hash__ of a keyword that is a subclass of str.  The caller
 * clears `packed` in any case. */
int fj_bind(const FjSignature *signature, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames, PyObject **arguments, FjPackedArgs *packed);

/* The slot that takes keyword `name`, a str: its index, or -1 where none but that of **kwargs
 * does. */
Py_ssize_t fj_bind_find(const FjSignature *signature, PyObject *name);

static inline void
fj_bind_release(FjPackedArgs *packed)
{
    Py_CLEAR(packed->varargs);
    Py_CLEAR(packed->varkw);
}

#endif
