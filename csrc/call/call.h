/* The call path of a FilterJit. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "call/filter_jit.h"

/* Calls a FilterJit: its vectorcall.  Any Python code may run. */
PyObject *fj_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* Is asked about the arguments of a call before its variant is called or compiled
 * (variable_jit.c). */
typedef struct FjArgumentsHook FjArgumentsHook;
struct FjArgumentsHook {
    /* (P) 1, 0 to give the call up, or -1 with an error.  The arguments have this Structure,
     * `arrays` are theirs and `self->objects` their numbered objects.  `is_new` if they have
     * been flattened: a variant's Structure has been accepted before.  `structure` is NULL,
     * and the error set, if they cannot be flattened. */
    int (*accept)(FjArgumentsHook *self, const FjStructure *structure, PyObject *const *arrays,
                  int is_new);
    FjLeafBuf objects; /* empty at first */
};

/* Calls a FilterJit.  `hook` may be NULL; NULL without an error if it gives the call up.  The
 * caller holds `self` and the arguments. */
PyObject *fj_call_from(FjFilterJit *self, FjArgumentsHook *hook, PyObject *const *args,
                       Py_ssize_t nargs, PyObject *kwnames);

/* Finds the variant of a call without making the call, for compiling ahead of time: a new
 * tuple (variant, arrays).  If there is no variant, one is compiled, which is in no cache. */
PyObject *fj_call_find_or_compile(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *kwnames);

/* Finds the variant of a call without compiling anything: a new tuple (variant or None,
 * Structure of the arguments, arrays). */
PyObject *fj_call_find(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
