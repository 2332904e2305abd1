/* What a type is to a walk: an array, a static leaf, or a node and how it comes apart.
 *
 * A Registry asks Python once for each type (`classify`) and remembers the answer as a
 * NodeKind.  It holds types weakly: a class that dies takes its kind along.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_REGISTRY_H
#define FJ_REGISTRY_H

#include "base/common.h"
#include "base/state.h"
#include "base/table.h"

/* The numbers are known to Python by the names in fj_node_kind_names.
 * NOLINTNEXTLINE(cert-int09-c): FJ_KIND_COUNT is a count, so its number goes to the next. */
typedef enum {
    FJ_ARRAY,        /* a leaf that is traced */
    FJ_PER_INSTANCE, /* a leaf of which only the instance tells (tracers) */
    FJ_STATIC,       /* a leaf that is not traced */
    FJ_NONE,         /* None: a node without children */
    FJ_TUPLE,
    FJ_LIST,
    FJ_DICT,         /* children in the order of the sorted keys */
    FJ_ORDERED_DICT, /* children in their own order */
    FJ_DEFAULT_DICT, /* as dict, with default_factory as a static */
    FJ_NAMEDTUPLE,
    FJ_MODULE,    /* fields kept in the instance's __dict__: Equinox Modules */
    FJ_DATACLASS, /* fields read by getattr, rebuilt by calling the class */
    FJ_CUSTOM,    /* comes apart through a callback, one level at a time */
    FJ_KIND_COUNT,
    /* Only inside a Structure: */
    FJ_ARGUMENTS = FJ_KIND_COUNT, /* the root of a call: one child for each parameter */
    FJ_MISSING                    /* a field or an argument that is not there */
} FjKindCode;

extern const char *const fj_node_kind_names[FJ_KIND_COUNT];

struct FjNodeKind {
    PyObject_HEAD FjKindCode code;
    PyTypeObject *type; /* borrowed: the address alone, checked through `weak` */
    PyObject *weak;     /* weak reference to the type */
    PyObject *names;    /* tuple of interned field names: dynamic ones, then static ones, then
                         * (modules) those of a wrapper */
    Py_ssize_t dynamic; /* how many of each */
    Py_ssize_t statics;
    Py_ssize_t wrapper;
    PyObject *key;     /* static: callable whose result stands for the value, or NULL */
    int fill_directly; /* named tuple: made by filling in a tuple, without calling the class */
    Py_ssize_t *places;  /* module: index of each field among the shared keys, -1 unknown */
    Py_ssize_t placed;   /* module: how many fields' places are known... */
    Py_ssize_t in_order; /* ... and how many of these are the field's own number */
    Py_ssize_t reach;    /* module: one more than the last of these places */
    unsigned int direct_version; /* module: the version of the class in which no field was
                                  * found to be a descriptor; 0 unknown */
};

struct FjRegistry {
    PyObject_HEAD FjTable kinds;
    FjNodeKind *recent;          /* borrowed from `kinds`: the one found last, or NULL */
    PyTypeObject *array_type;    /* the type that most arrays have */
    FjState *state;              /* borrowed: our type keeps the module */
    PyObject *classify;          /* (type, instance) -> (code, details...) */
    PyObject *is_array;          /* (instance) -> bool */
    PyObject *flatten_one_level; /* (instance) -> (children, aux) */
    PyObject *flatten_with_keys; /* (instance) -> (children, aux, unflatten) */
    PyObject *missing;           /* stands for a field that is not there */
    PyObject *keyed;             /* tuple of (type, key), or NULL: see statics.h */
    PyObject *forget;            /* callback of the weak references */
    PyObject *weakrefs;
};

extern PyType_Spec fj_node_kind_spec;
extern PyType_Spec fj_registry_spec;

/* (P) The kind of `object`'s type: a new reference, or NULL with an error. */
FjNodeKind *fj_registry_kind(FjRegistry *registry, PyObject *object);

/* The same where it is known already, else NULL without an error; borrowed. */
FjNodeKind *fj_registry_cached_kind(FjRegistry *registry, PyTypeObject *type);

/* 1 when the type is always an array's, as far as is known. */
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
