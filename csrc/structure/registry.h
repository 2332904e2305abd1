/* The kind of each type: an array, a static leaf, or a container and how to flatten it.
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

/* The code of a kind, and of a node in a Structure.  Python uses the names in
 * fj_node_kind_names.
 * NOLINTNEXTLINE(cert-int09-c): FJ_KIND_COUNT is a count, and FJ_ARGUMENTS has its number. */
typedef enum {
    /* Leaves. */
    FJ_ARRAY,        /* traced */
    FJ_PER_INSTANCE, /* an array or a static, depending on the instance: tracers */
    FJ_STATIC,       /* not traced */

    /* Containers that the core flattens and builds itself. */
    FJ_NONE, /* None, which has no children */
    FJ_TUPLE,
    FJ_LIST,
    FJ_DICT,         /* the children are in the order of the sorted keys */
    FJ_ORDERED_DICT, /* the children are in the order of the dict */
    FJ_DEFAULT_DICT, /* like FJ_DICT; the default_factory is a static */
    FJ_NAMEDTUPLE,
    FJ_MODULE,    /* an Equinox Module: its fields are in the instance's __dict__ */
    FJ_DATACLASS, /* its fields are read by getattr; built by calling the class */

    /* Any other container: flattened one level at a time by a Python callback. */
    FJ_CUSTOM,

    FJ_KIND_COUNT,

    /* Nodes of a Structure that no type has as its kind. */
    FJ_ARGUMENTS = FJ_KIND_COUNT, /* the root of a call: one child for each parameter */
    FJ_MISSING                    /* an absent field, or an argument that was not given */
} FjKindCode;

/* The names of the kinds in Python. */
extern const char *const fj_node_kind_names[FJ_KIND_COUNT];

struct FjNodeKind {
    PyObject_HEAD FjKindCode code;
    PyTypeObject *type; /* borrowed; valid while `weak` is alive */
    PyObject *weak;     /* weak reference to `type` */

    /* A callable, or NULL: where a value of the type is static, the result of the callable is
     * hashed and compared instead. */
    PyObject *key;

    /* FJ_NAMEDTUPLE: instances are built by filling in a tuple, without calling the class. */
    int fill_directly;

    /* FJ_MODULE, FJ_DATACLASS: the interned names of the dynamic fields, then of the static
     * fields, then (modules only) of the attributes that a wrapper has besides; and the number
     * of each. */
    PyObject *names;
    Py_ssize_t dynamic;
    Py_ssize_t statics;
    Py_ssize_t wrapper;

    /* FJ_MODULE: where the attributes are in the array that CPython keeps them in, see
     * fields.h. */
    Py_ssize_t *places;  /* the index of each name in the array; -1 until it has been found */
    Py_ssize_t placed;   /* the number of fields whose place has been found ... */
    Py_ssize_t in_order; /* ... and of those whose place is the field's own index */
    Py_ssize_t reach;    /* the largest place of a field + 1 */

    /* FJ_MODULE: the version of the class for which it was checked that no field's name is a
     * data descriptor; 0 if that has not been checked. */
    unsigned int direct_version;
};

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

    PyObject *missing; /* a field with this value counts as absent */
    PyObject *keyed;   /* tuple of pairs (type, key), or NULL: see statics.h */
    PyObject *forget;  /* the callback of the weak references to types */
    PyObject *weakrefs;
};

/* The number of fields of an FJ_MODULE or FJ_DATACLASS. */
static inline Py_ssize_t
fj_node_kind_fields(const FjNodeKind *kind)
{
    return kind->dynamic + kind->statics;
}

extern PyType_Spec fj_node_kind_spec;
extern PyType_Spec fj_registry_spec;

/* (P) The kind of `object`'s type: a new reference, or NULL with an error. */
FjNodeKind *fj_registry_kind(FjRegistry *registry, PyObject *object);

/* The kind of a type, borrowed; NULL without an error when `classify` has not been called for
 * the type.  Runs no Python code. */
FjNodeKind *fj_registry_cached_kind(FjRegistry *registry, PyTypeObject *type);

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
