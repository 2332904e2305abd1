/* The call path of a FilterJit. */
#ifndef FJ_CALL_H
#define FJ_CALL_H

#include "base/common.h"
#include "walk/match.h"
#include "call/filter_jit.h"

/* Calls a FilterJit: its vectorcall.  Any Python code may run. */
PyObject *fj_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* Arguments that were flattened ahead of the call (partial.c). */
typedef struct {
    FjCapture *items;
    Py_ssize_t count;
    FjVariant *variant; /* owned: the variant of the last call with them, or NULL */
} FjCapturedArgs;

/* Calls a FilterJit.  `captured` are the captured ones among the arguments, or NULL.  The
 * caller holds `self`, `captured` and the arguments. */
PyObject *fj_call_captured(FjFilterJit *self, FjCapturedArgs *captured, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames);

/* Is asked about the arguments of a call before its variant is called or compiled
 * (variable_jit.c). */
typedef struct FjInspector FjInspector;
struct FjInspector {
    /* (P) 1, 0 to give the call up, or -1 with an error.  `arguments` are `count` borrowed
     * references, by parameter, or NULL.  They match `structure`, but for what its REF nodes
     * stand for, unless it is NULL: 2 if other objects are one, so that they do not match it.
     * `captures` are those that the memo has found, in order: no Python code has run since. */
    int (*inspect)(FjInspector *self, const FjStructure *structure, PyObject *const *arguments,
                   Py_ssize_t count, const FjCapture *captures, Py_ssize_t num_captures);
};

/* Calls a FilterJit.  NULL without an error if the inspector gives the call up.  The caller
 * holds `self` and the arguments. */
PyObject *fj_call_inspected(FjFilterJit *self, FjInspector *inspector, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames);

/* Finds the variant of a call without making the call, for compiling ahead of time: a new
 * tuple (variant, arrays).  If there is no variant, one is compiled, which is in no cache. */
PyObject *fj_call_lookup(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);

/* Finds the variant of a call without compiling anything: a new tuple (variant or None,
 * Structure of the arguments, arrays). */
PyObject *fj_call_peek(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/* Gives a FilterJit its cache and arrays, if it has none: options.prepare(self) -> (cache,
 * arrays).  0, or -1 with an error. */
int fj_call_prepare(FjFilterJit *self);

#endif
