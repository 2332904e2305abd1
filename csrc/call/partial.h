/* PartialFilterJit: a FilterJit with some of its arguments given once, by f.partial(...). */
#ifndef FJ_PARTIAL_H
#define FJ_PARTIAL_H

#include "base/common.h"

extern PyType_Spec fj_partial_spec;

#endif
