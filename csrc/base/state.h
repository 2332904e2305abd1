/* What belongs to one import of the module: its types.  There is no other state; nothing is
 * global to the process. */
#ifndef FJ_STATE_H
#define FJ_STATE_H

#include "base/common.h"

typedef struct {
    PyTypeObject *kind;
    PyTypeObject *registry;
    PyTypeObject *frozen;
    PyTypeObject *structure;
    PyTypeObject *signature;
    PyTypeObject *output;
    PyTypeObject *variant;
    PyTypeObject *cache;
    PyTypeObject *filter_jit;
    PyTypeObject *bound;
    PyTypeObject *getattribute;
    PyTypeObject *partial;
    PyTypeObject *compiled;
} FjState;

/* The state behind one of the module's own types. */
static inline FjState *
fj_state_of(PyTypeObject *type)
{
    return (FjState *)PyType_GetModuleState(type);
}

#endif
