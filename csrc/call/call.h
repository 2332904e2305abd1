/* The call path of a FilterJit. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "call/filter_jit.h"

/* The vectorcall of a FilterJit.  Can run any Python code. */
PyObject *fj_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* Checks the arguments of a call before its variant is called or compiled (variable_jit.c). */
typedef struct FjArgumentsCheck FjArgumentsCheck;
struct FjArgumentsCheck {
    /* (P) 1, 0 to give the call up, or -1 with an error.  The arguments have this Structure,
     * `arrays` and the numbered `self->objects`.  `was_flattened`: a matched
     * Structure was accepted earlier.  `structure` is NULL, with an error, if flattening
     * failed. */
    int (*accept)(FjArgumentsCheck *self, const FjStructure *structure,
                  PyObject *const *arrays, int was_flattened);
    FjLeafBuf objects; /* initially empty */
};

/* Makes a call.  `check` can be NULL.  Returns NULL without an error if the check gives the
 * call up.  The caller holds `self` and the arguments. */
PyObject *fj_call_with_check(FjFilterJit *self, FjArgumentsCheck *check, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames);

/* What to do without a variant. */
typedef enum {
    FJ_FIND,            /* nothing */
    FJ_FIND_OR_COMPILE, /* compile one, but cache it nowhere */
    FJ_FIND_OR_ADD      /* compile one and add it to the Cache, as a call does */
} FjGoal;

/* Looks up the variant without a call.  Returns a new tuple (variant or None, Structure of the
 * arguments, arrays). */
PyObject *fj_call_find(FjFilterJit *self, FjGoal goal, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
