/* What each type is, and which leaves are traced.
 *
 * A Registry calls the Python function `classify` once for each type and stores the result as
 * a NodeKind.  It holds types weakly: when a class dies, the Registry drops its kind.
 *
 * What a type is does not depend on who asks.  What does is the *policy*: which static leaves
 * are traced all the same, how some static values are compared, and whether an object that
 * occurs twice is one.  Registries of different policies share the kinds of one of them.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "base/state.h"
#include "base/table.h"
#include "structure/node_kind.h"

struct FjRegistry {
    PyObject_HEAD FjRegistry *types; /* the Registry whose kinds these are: itself (borrowed),
                                      * or the one that this was made of (owned) */
    PyTypeObject *array_type;        /* the type of most arrays */
    FjState *state;                  /* borrowed: the Registry's type holds the module */

    /* The policy: tuples, or NULL. */
    PyObject *traced;      /* types of leaves, static by their kind, that are traced */
    PyObject *traced_in;   /* the same, where FJ_TRACED_ARGUMENT says so of a parameter */
    PyObject *keyed;       /* pairs (type, key): see statics.h */
    PyObject *by_identity; /* types whose instances occur once in the arguments of a call: see
                            * structure.h */

    /* What the types are; read in `types` only. */
    FjTable kinds;               /* from a type to its NodeKind */
    FjNodeKind *recent;          /* borrowed from `kinds`: the kind found last, or NULL */
    PyObject *classify;          /* (type, instance) -> (name of the kind, details...) */
    PyObject *is_array;          /* (instance of an FJ_MAYBE_ARRAY type) -> bool */
    PyObject *flatten_one_level; /* (FJ_CUSTOM instance) -> (children, aux data) */
    PyObject *flatten_with_keys; /* the same -> (children, aux data, unflatten, keys) */
    PyObject *missing;           /* a field with this value counts as absent */
    PyObject *words;             /* see words.h */
    PyObject *forget;            /* the callback of the weak references to types */

    PyObject *weakrefs;
};

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

/* Whether a policy, a tuple of types or NULL, names this very type: `traced` those of leaves,
 * which are static by their kind, `traced_in` the same in an argument with FJ_TRACED_ARGUMENT.
 */
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

/* The code of a kind under the policy: FJ_ARRAY for leaves that it traces. */
static inline FjKindCode
fj_registry_code(const FjRegistry *registry, const FjNodeKind *kind)
{
    return FJ_UNLIKELY(registry->traced != NULL) && kind->code == FJ_STATIC &&
                   fj_registry_names(registry->traced, kind->type)
               ? FJ_ARRAY
               : kind->code;
}

/* Whether instances of the type are traced as arrays.  0 also when `classify` has not been
 * called for the type.  Runs no Python code. */
static inline int
fj_registry_is_array_type(FjRegistry *registry, PyTypeObject *type)
{
    if (FJ_LIKELY(type == registry->array_type)) {
        return 1;
    }
    FjNodeKind *kind = fj_registry_cached_kind(registry, type);
    return kind != NULL && fj_registry_code(registry, kind) == FJ_ARRAY;
}

/* Whether a type is one of `by_identity`, or a subclass of one.  Runs no Python code. */
int fj_registry_is_by_identity(const FjRegistry *registry, PyTypeObject *type);

/* A field with this value counts as absent; borrowed. */
static inline PyObject *
fj_registry_missing(const FjRegistry *registry)
{
    return FJ_LOAD_POINTER(registry->types->missing);
}

/* (P) Whether an instance of an FJ_MAYBE_ARRAY type is an array: 1, 0, -1 with an error. */
int fj_registry_is_array(FjRegistry *registry, PyObject *object);
