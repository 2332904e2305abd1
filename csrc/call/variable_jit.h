/* VariableJit, the base of the type of functions that filterjit.nnx.jit returns. */
#ifndef FJ_VARIABLE_JIT_H
#define FJ_VARIABLE_JIT_H

#include "base/common.h"

extern PyType_Spec fj_variable_jit_spec;

#endif
