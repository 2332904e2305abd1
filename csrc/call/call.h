/* The road of a call. */
#ifndef FJ_CALL_H
#define FJ_CALL_H

#include "base/common.h"
#include "call/filter_jit.h"
#include "walk/match.h"

/* The vectorcall of a FilterJit: any Python code may run. */
PyObject *fj_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* Arguments that are captured (partial.c), and the variant that was found for them last. */
typedef struct {
    FjCapture *items;
    Py_ssize_t count;
    FjVariant *last; /* owned, or NULL */
} FjCaptured;

/* The same where some of the arguments are captured (`captured` may be NULL); the caller holds
 * `self`, `captured` and the arguments. */
PyObject *fj_call_captured(FjFilterJit *self, FjCaptured *captured, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames);

/* The first two steps alone, for what happens ahead of time: a tuple (variant, arrays); the
 * variant is made where there is none. */
PyObject *fj_call_lookup(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);

/* The same without making anything: a tuple (variant or None, Structure of the arguments,
 * arrays). */
PyObject *fj_call_peek(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/* What the first call does before all else, once: options.prepare(self) -> (cache, arrays).
 * 0, or -1 with an error. */
int fj_call_prepare(FjFilterJit *self);

#endif
