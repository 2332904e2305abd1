/* The module state: the objects that belong to one import of the module.  No object is global
 * to the process, so interpreters share none. */
#pragma once

#include "base/common.h"

/* Interned names: attributes, and the hooks that a hit can call. */
#define FJ_NAMES(NAME)                                                                        \
    NAME(__getattribute__)                                                                    \
    NAME(_bound_type)                                                                         \
    NAME(choose)                                                                              \
    NAME(copy)                                                                                \
    NAME(dtype)                                                                               \
    NAME(run)                                                                                 \
    NAME(shape)

/* TYPE(member of FjState, spec, base or NULL).  A base comes before its subclasses. */
#define FJ_TYPES(TYPE)                                                                        \
    TYPE(kind, fj_node_kind_spec, NULL)                                                       \
    TYPE(registry, fj_registry_spec, NULL)                                                    \
    TYPE(identity, fj_identity_spec, &PyTuple_Type)                                           \
    TYPE(structure, fj_structure_spec, NULL)                                                  \
    TYPE(signature, fj_signature_spec, NULL)                                                  \
    TYPE(output, fj_output_spec, NULL)                                                        \
    TYPE(variant, fj_variant_spec, NULL)                                                      \
    TYPE(cache, fj_cache_spec, NULL)                                                          \
    TYPE(filter_jit, fj_filter_jit_spec, NULL)                                                \
    TYPE(call_proxy, fj_call_proxy_spec, NULL)                                                \
    TYPE(bound_method, fj_bound_method_spec, state->call_proxy)                               \
    TYPE(getattribute, fj_getattribute_spec, NULL)                                            \
    TYPE(direct, fj_direct_spec, NULL)                                                        \
    TYPE(direct_context, fj_direct_context_spec, NULL)                                        \
    TYPE(variable_jit, fj_variable_jit_spec, NULL)

#define FJ_DECLARE_SPEC(member, spec, base) extern PyType_Spec spec;
FJ_TYPES(FJ_DECLARE_SPEC)

typedef struct {
#define FJ_DECLARE_TYPE(member, spec, base) PyTypeObject *member;
    FJ_TYPES(FJ_DECLARE_TYPE)
#define FJ_DECLARE(name) PyObject *str_##name;
    FJ_NAMES(FJ_DECLARE)
} FjState;

/* Returns the state (borrowed) of the module of `type`: one of the types in FjState, or a
 * subclass, which can be a Python class. */
static inline FjState *
fj_state_of(PyTypeObject *type)
{
    while (((PyHeapTypeObject *)type)->ht_module == NULL) {
        type = type->tp_base;
    }
    return (FjState *)PyModule_GetState(((PyHeapTypeObject *)type)->ht_module);
}
