/* The module state: the objects that belong to one import of the module.  No object is global
 * to the process, so each interpreter has its own. */
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

/* The state of the module that `type`, one of the types in FjState, belongs to; borrowed. */
static inline FjState *
fj_state_of(PyTypeObject *type)
{
    return (FjState *)PyType_GetModuleState(type);
}

#endif
