/* Calls that go straight to an executable, past jax.jit: the Python type Direct. */
#ifndef FJ_DIRECT_H
#define FJ_DIRECT_H

#include "base/common.h"

extern PyType_Spec fj_direct_spec;

#endif
