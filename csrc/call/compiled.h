/* What was compiled ahead of time: a call of one static structure and no other. */
#ifndef FJ_COMPILED_H
#define FJ_COMPILED_H

#include "base/common.h"

extern PyType_Spec fj_compiled_spec;

#endif
