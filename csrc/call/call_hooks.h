/* The hooks: how a FilterJit asks Python when a call isn't a plain hit. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "call/filter_jit.h"

/* Each function calls the hook of its name and can run any Python code.  Unless it says
 * otherwise, call it without an exception set.  The caller holds all arguments. */

int fj_hooks_prepare_first(FjFilterJit *self);

/* If a FilterJit has no cache yet, sets its cache and arrays. */
static inline int
fj_hooks_prepare(FjFilterJit *self)
{
    return FJ_LIKELY(FJ_LOAD_POINTER(self->cache) != NULL) ? 0 : fj_hooks_prepare_first(self);
}

/* An FjChoose with the FilterJit as its context. */
PyObject *fj_hooks_choose(void *self, Py_ssize_t parameter, PyObject *argument);

/* Returns the callable of a new variant. */
PyObject *fj_hooks_compile(FjFilterJit *self, FjVariant *variant);

/* Runs a variant that is `run_by_hook`, or one that raised the current Exception, if a
 * different program can make the call.  Returns the Output, or NULL with an exception. */
PyObject *fj_hooks_run(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays);

/* Finishes a trace that began in this call.  With an Output, first inspects a new trace and
 * waits for a program that can raise: its exception is raised in this call.  The current
 * exception, if any, stays unless the hook is interrupted. */
int fj_hooks_finish(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                    FjOutput *output);

/* Lets Python replace the exception of a failed call, or of a look-up.  Returns NULL with an
 * exception, or for a call, without one, a callable that makes the call.  `variant` is NULL if
 * none was found.  `given` is NULL, or (args, kwargs) if they don't fit the signature: then no
 * exception is set. */
PyObject *fj_hooks_failed(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                          PyObject *given, int is_call);
