/* The kind of each type.
 *
 * A Registry calls the Python function `classify` once for each type and stores the result as
 * a NodeKind.  It holds types weakly: when a class dies, the Registry drops its kind.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_REGISTRY_H
#define FJ_REGISTRY_H

#include "base/common.h"
#include "base/state.h"
#include "base/table.h"
#include "structure/node_kind.h"

struct FjRegistry {
    PyObject_HEAD FjTable kinds; /* from a type to its NodeKind */
    FjNodeKind *recent;          /* borrowed from `kinds`: the kind found last, or NULL */
    PyTypeObject *array_type;    /* the type of most arrays */
    FjState *state;              /* borrowed: the Registry's type holds the module */

    /* Callables given by Python. */
    PyObject *classify;          /* (type, instance) -> (name of the kind, details...) */
    PyObject *is_array;          /* (instance of an FJ_PER_INSTANCE type) -> bool */
    PyObject *flatten_one_level; /* (FJ_CUSTOM instance) -> (children, aux data) */
    PyObject *flatten_with_keys; /* the same -> (children, aux data, unflatten, keys) */

    PyObject *missing;     /* a field with this value counts as absent */
    PyObject *keyed;       /* tuple of pairs (type, key), or NULL: see statics.h */
    PyObject *by_identity; /* tuple of the types whose instances occur once in the arguments of
                            * a call, or NULL: see structure.h */
    PyObject *forget;      /* the callback of the weak references to types */
    PyObject *weakrefs;
};

extern PyType_Spec fj_registry_spec;

/* (P) The kind of `object`'s type: a new reference, or NULL with an error. */
FjNodeKind *fj_registry_kind(FjRegistry *registry, PyObject *object);

/* The kind of a type, borrowed; NULL without an error when `classify` has not been called for
 * the type.  Runs no Python code. */
FjNodeKind *fj_registry_cached_kind(FjRegistry *registry, PyTypeObject *type);

/* (P) Flattens an instance of an FJ_CUSTOM or FJ_DESCRIBED type by the function that the type
 * is registered with.  A new reference that holds `*children`, an iterable, and `*aux`; NULL
 * with an error. */
PyObject *fj_registry_flatten(FjRegistry *registry, PyObject *object, PyObject **children,
                              PyObject **aux);

/* Whether the kind of the type is FJ_ARRAY.  0 also when `classify` has not been called for
 * the type.  Runs no Python code. */
static inline int
fj_registry_is_array_type(FjRegistry *registry, PyTypeObject *type)
{
    if (FJ_LIKELY(type == registry->array_type)) {
        return 1;
    }
    FjNodeKind *kind = fj_registry_cached_kind(registry, type);
    return kind != NULL && kind->code == FJ_ARRAY;
}

/* (P) Whether an instance of an FJ_PER_INSTANCE type is an array: 1, 0, -1 with an error. */
int fj_registry_is_array(FjRegistry *registry, PyObject *object);

#endif
