/* The hooks of a call: what a FilterJit asks Python where a call is no plain hit. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "call/filter_jit.h"

/* Each function calls the hook of its name, and may run any Python code.  No exception is set
 * when it is called, except where it says so.  The caller holds all arguments. */

/* fj_hooks_prepare of a FilterJit that has no cache. */
int fj_hooks_prepare_first(FjFilterJit *self);

/* Gives a FilterJit its cache and arrays, if it has none.  0, or -1 with an error. */
static inline int
fj_hooks_prepare(FjFilterJit *self)
{
    return FJ_LIKELY(FJ_LOAD_POINTER(self->cache) != NULL) ? 0 : fj_hooks_prepare_first(self);
}

/* An FjChoose, whose context is the FilterJit. */
PyObject *fj_hooks_choose(void *self, Py_ssize_t parameter, PyObject *argument);

/* The callable of a new variant: a new reference, or NULL with an error. */
PyObject *fj_hooks_compile(FjFilterJit *self, FjVariant *variant);

/* Makes the call of a variant that `run_by_hook`, or one that has failed with the Exception
 * that is set, if another program can make it: the Output, or NULL with an exception. */
PyObject *fj_hooks_run(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays);

/* Ends what a trace in a call has begun.  If there is an Output, inspects a new trace before,
 * and waits for a program that can raise, so that this call raises its exception.  0, or -1
 * with an error.  An exception that is set stays, unless the hook is interrupted. */
int fj_hooks_finish(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                    FjOutput *output);

/* Lets Python replace the exception of a failed call: NULL with an exception, or without one a
 * callable, which makes the call (new reference).  `variant` is NULL if none was found;
 * `given` is (args, kwargs) if these do not fit the signature, and then no exception is set.
 */
PyObject *fj_hooks_failed(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                          PyObject *given);
