/* The Python type Structure: a treedef together with its static leaves. */
#ifndef FJ_STRUCTURE_TYPE_H
#define FJ_STRUCTURE_TYPE_H

#include "base/common.h"

extern PyType_Spec fj_structure_spec;

#endif
