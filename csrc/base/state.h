/* The module state: the objects that belong to one import of the module.  No object is global
 * to the process, so each interpreter has its own. */
#ifndef FJ_STATE_H
#define FJ_STATE_H

#include "base/common.h"

/* Names that are interned once: of attributes, and of the hooks that a hit can call. */
#define FJ_NAMES(NAME)                                                                        \
    NAME(__getattribute__)                                                                    \
    NAME(_bound_type)                                                                         \
    NAME(before_raising_call)                                                                 \
    NAME(choose)                                                                              \
    NAME(copy)                                                                                \
    NAME(dtype)                                                                               \
    NAME(shape)                                                                               \
    NAME(wait)

typedef struct {
    PyTypeObject *kind;
    PyTypeObject *registry;
    PyTypeObject *identity;
    PyTypeObject *structure;
    PyTypeObject *signature;
    PyTypeObject *output;
    PyTypeObject *variant;
    PyTypeObject *cache;
    PyTypeObject *filter_jit;
    PyTypeObject *call_proxy;
    PyTypeObject *bound_method;
    PyTypeObject *getattribute;
    PyTypeObject *direct;
    PyTypeObject *direct_context;
    PyTypeObject *variable_jit;
#define FJ_DECLARE(name) PyObject *str_##name;
    FJ_NAMES(FJ_DECLARE)
#undef FJ_DECLARE
} FjState;

/* The state of the module that `type` belongs to: one of the types in FjState, or a subclass
 * of one, which may be in Python; borrowed. */
static inline FjState *
fj_state_of(PyTypeObject *type)
{
    while (((PyHeapTypeObject *)type)->ht_module == NULL) {
        type = type->tp_base;
    }
    return (FjState *)PyModule_GetState(((PyHeapTypeObject *)type)->ht_module);
}

#endif
