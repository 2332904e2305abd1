/* The module state: the objects that belong to one import of the module.  No object is global
 * to the process, so each interpreter has its own. */
#ifndef FJ_STATE_H
#define FJ_STATE_H

#include "base/common.h"

/* Names that are interned once: of the hooks that C calls (call.c, filter_jit.c), and of
 * attributes. */
#define FJ_NAMES(NAME)                                                                        \
    NAME(__getattribute__)                                                                    \
    NAME(became_method)                                                                       \
    NAME(before_raising_call)                                                                 \
    NAME(call_again)                                                                          \
    NAME(compile)                                                                             \
    NAME(inspect_new_trace)                                                                   \
    NAME(prepare)                                                                             \
    NAME(raise_binding_error)                                                                 \
    NAME(translate_error)                                                                     \
    NAME(variants)                                                                            \
    NAME(wait)

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
    PyTypeObject *any_trace;
    PyTypeObject *direct;
    PyTypeObject *direct_context;
    PyTypeObject *variable_jit;
    PyTypeObject *hook_method;
#define FJ_DECLARE(name) PyObject *str_##name;
    FJ_NAMES(FJ_DECLARE)
#undef FJ_DECLARE
} FjState;

/* The state of the module that `type`, one of the types in FjState, belongs to; borrowed. */
static inline FjState *
fj_state_of(PyTypeObject *type)
{
    return (FjState *)PyType_GetModuleState(type);
}

#endif
