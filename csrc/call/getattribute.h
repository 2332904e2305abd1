/* The __getattribute__ of a class with jitted methods, in the place of one in Python. */
#ifndef FJ_GETATTRIBUTE_H
#define FJ_GETATTRIBUTE_H

#include "base/common.h"
#include "base/state.h"

extern PyType_Spec fj_getattribute_spec;

#endif
