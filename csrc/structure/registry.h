/* The Registry: the kind of each type, and the policy that decides which leaves are traced.
 *
 * A Registry calls the Python function `classify` once per type and stores the result as a
 * NodeKind.  It holds types weakly, and drops the kinds of dead classes when it meets
 * a new one.
 *
 * The kinds are the same for all callers.  The *policy* differs: which static leaves are
 * traced anyway, how some static values are compared, and if an object that occurs twice
 * counts as one.  Registries with different policies share the kinds of one Registry. */
#pragma once

#include "base/common.h"
#include "base/state.h"
#include "base/table.h"
#include "structure/node_kind.h"

struct FjRegistry {
    PyObject_HEAD FjRegistry *types; /* the owner of the kinds: this Registry (borrowed), or
                                      * the original of with_policy (owned) */
    PyTypeObject *array_type;        /* the type of most arrays */
    FjState *state;                  /* borrowed: the Registry's type holds the module */

    /* The policy: tuples, or NULL. */
    PyObject *traced;      /* types of leaves that are static by kind but traced */
    PyObject *traced_in;   /* the same, in arguments with FJ_TRACED_ARGUMENT */
    PyObject *keyed;       /* pairs (type, key), see statics.h */
    PyObject *by_identity; /* types with one node per instance, see Sharing in structure.h */

    /* Set in `types` only. */
    FjTable kinds;               /* type -> NodeKind */
    FjNodeKind *recent;          /* the kind found last, borrowed from `kinds`, or NULL */
    PyObject *classify;          /* (type, instance) -> dict: fj_node_kind_read */
    PyObject *is_array;          /* (instance of an FJ_MAYBE_ARRAY type) -> bool */
    PyObject *flatten_one_level; /* (FJ_CUSTOM instance) -> (children, aux data) */
    PyObject *flatten_with_keys; /* the same -> (children, aux data, unflatten, keys) */
    PyObject *missing;           /* a field with this value counts as absent */
    PyObject *messages;          /* messages.h */

    PyObject *weakrefs;
};

/* (P) Returns the kind of `object`'s type. */
FjNodeKind *fj_registry_kind(FjRegistry *registry, PyObject *object);

/* Returns the kind of a type (borrowed), or NULL before `classify`.  Runs no Python code. */
FjNodeKind *fj_registry_cached_kind(FjRegistry *registry, PyTypeObject *type);

/* (P) Flattens an instance of an FJ_CUSTOM or FJ_DESCRIBED type with the type's registered
 * function.  Returns a new reference that owns `*children`, an iterable, and `*aux`. */
PyObject *fj_registry_flatten(FjRegistry *registry, PyObject *object, PyObject **children,
                              PyObject **aux);

/* True if `types`, a tuple of the policy or NULL, contains exactly this type. */
static inline int
fj_registry_names(PyObject *types, const PyTypeObject *type)
{
    for (Py_ssize_t i = 0; types != NULL && i < PyTuple_GET_SIZE(types); i++) {
        if (PyTuple_GET_ITEM(types, i) == (const PyObject *)type) {
            return 1;
        }
    }
    return 0;
}

/* Returns the code of a kind under the policy: FJ_ARRAY for leaves that it traces. */
static inline FjKindCode
fj_registry_code(const FjRegistry *registry, const FjNodeKind *kind)
{
    return FJ_UNLIKELY(registry->traced != NULL) && kind->code == FJ_STATIC &&
                   fj_registry_names(registry->traced, kind->type)
               ? FJ_ARRAY
               : kind->code;
}

/* True if instances are traced.  False before `classify`.  Runs no Python code. */
static inline int
fj_registry_is_array_type(FjRegistry *registry, PyTypeObject *type)
{
    if (FJ_LIKELY(type == registry->array_type)) {
        return 1;
    }
    FjNodeKind *kind = fj_registry_cached_kind(registry, type);
    return kind != NULL && fj_registry_code(registry, kind) == FJ_ARRAY;
}

/* True if `by_identity` contains a type or a base of it.  Runs no Python code. */
int fj_registry_is_by_identity(const FjRegistry *registry, PyTypeObject *type);

static inline PyObject *
fj_registry_missing(const FjRegistry *registry)
{
    return FJ_LOAD_POINTER(registry->types->missing);
}

/* (P) For an instance of an FJ_MAYBE_ARRAY type: 1, 0, or -1 with an error. */
int fj_registry_is_array(FjRegistry *registry, PyObject *object);
