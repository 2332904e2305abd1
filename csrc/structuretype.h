/* The Python type Structure. */
#ifndef FJ_STRUCTURETYPE_H
#define FJ_STRUCTURETYPE_H

#include "common.h"

extern PyType_Spec fj_structure_spec;

#endif
