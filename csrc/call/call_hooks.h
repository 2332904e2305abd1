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

/* Sets the TypeError of arguments that do not fit the signature. */
void fj_hooks_raise_binding_error(FjFilterJit *self, PyObject *const *args, Py_ssize_t nargs,
                                  PyObject *kwnames);

/* An FjChoose, whose context is the FilterJit. */
PyObject *fj_hooks_choose(void *self, Py_ssize_t parameter, PyObject *argument);

/* The callable of a new variant: a new reference, or NULL with an error. */
PyObject *fj_hooks_compile(FjFilterJit *self, FjVariant *variant);

/* 0, or -1 with an error. */
int fj_hooks_before_raising_call(FjFilterJit *self, FjVariant *variant);

/* Asks whether the program of a new trace can raise while it runs, and notes the answer, if
 * there is one, for this trace.  0, or -1 with an error. */
int fj_hooks_inspect_new_trace(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                               FjOutput *output);

/* Has run what this thread has deferred on the variant since its `deferrals` was `first`.
 * Steals `result`, that of the call, NULL with an exception, and returns it; or NULL with an
 * exception, that which was set or an interrupt. */
PyObject *fj_hooks_run_deferred(FjFilterJit *self, FjVariant *variant, Py_ssize_t first,
                                PyObject *result);

/* Waits for a program that can raise, so that its exception is raised by this call.  0, or -1
 * with an error. */
int fj_hooks_wait(FjFilterJit *self, FjOutput *output);

/* After a call has failed, if Python has set the `call` of the variant: lets it set another
 * one for these arrays.  1 if that is to be called, and then no exception is set any more; or
 * 0 with an exception, that which was set before or that of the hook. */
int fj_hooks_call_again(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays);

/* Lets Python replace the exception that is set, if there is one.  `variant` is NULL if none
 * was found.  If the call is to be handed over instead, `*reason` is a new str, and the
 * exception is cleared; not if `reason` is NULL. */
void fj_hooks_translate_error(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                              PyObject **reason);

/* Makes the call with something else: its result, or NULL with an error. */
PyObject *fj_hooks_hand_over(FjFilterJit *self, PyObject *reason, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames);
