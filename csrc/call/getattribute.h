/* Getattribute: a __getattribute__ in C for classes with jitted methods that inherit one in
 * Python. */
#ifndef FJ_GETATTRIBUTE_H
#define FJ_GETATTRIBUTE_H

#include "base/common.h"
#include "base/state.h"

extern PyType_Spec fj_getattribute_spec;

#endif
