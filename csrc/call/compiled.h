/* Compiled: a function that was compiled ahead of time, for one structure of its arguments. */
#ifndef FJ_COMPILED_H
#define FJ_COMPILED_H

#include "base/common.h"

extern PyType_Spec fj_compiled_spec;

#endif
