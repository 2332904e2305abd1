/* BoundFilterJit: what `instance.method` is if `method` is a FilterJit. */
#ifndef FJ_BOUND_METHOD_H
#define FJ_BOUND_METHOD_H

#include "base/common.h"
#include "base/state.h"
#include "call/hook_method.h"

extern PyType_Spec fj_bound_method_spec;
extern const FjHookMethodDef fj_bound_method_hooks[];

/* A new bound method, or NULL with an error. */
PyObject *fj_bound_method_new(FjState *state, PyObject *function, PyObject *self);

/* Whether `object` is a bound method of exactly this function and this `self`. */
int fj_bound_method_is(const FjState *state, PyObject *object, PyObject *function,
                       PyObject *self);

#endif
