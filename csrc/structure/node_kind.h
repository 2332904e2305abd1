/* The kind of a type: an array, a static leaf, or a container and how to flatten it.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "base/state.h"

/* The code of a kind, and of a node in a Structure.  Python uses the names in fj_code_info.
 * NOLINTNEXTLINE(cert-int09-c): FJ_KIND_COUNT is a count, and FJ_ARGUMENTS has its number. */
typedef enum {
    /* Leaves. */
    FJ_ARRAY,       /* traced */
    FJ_MAYBE_ARRAY, /* an array or a static, depending on the instance: tracers */
    FJ_STATIC,      /* not traced */

    /* Containers that the core flattens and builds itself. */
    FJ_NONE, /* None, which has no children */
    FJ_TUPLE,
    FJ_LIST,
    FJ_DICT,         /* the children are in the order of the sorted keys */
    FJ_ORDERED_DICT, /* the children are in the order of the dict */
    FJ_DEFAULT_DICT, /* like FJ_DICT; the default_factory is a static */
    FJ_NAMEDTUPLE,
    FJ_MODULE, /* all attributes of the instance's __dict__: an Equinox Module */
    FJ_OBJECT, /* some attributes of the instance, by name: a dataclass */

    /* Any other container: flattened one level at a time by a Python callback. */
    FJ_CUSTOM,

    /* Each instance tells which of its attributes are children and which are static.  Its node
     * is an FJ_MODULE, with a kind of its own for each such set (fj_node_kind_described),
     * or an FJ_CUSTOM. */
    FJ_DESCRIBED,

    FJ_KIND_COUNT,

    /* Nodes of a Structure that no type has as its kind. */
    FJ_ARGUMENTS = FJ_KIND_COUNT, /* the root of a call: one child for each parameter */
    FJ_MISSING,                   /* an absent field, or an argument that was not given */
    FJ_REF, /* an object that stands at an earlier place of the arguments: see structure.h */
    FJ_CODE_COUNT
} FjKindCode;

/* How an FJ_OBJECT is built.  Python uses the names in the comments. */
typedef enum {
    FJ_BUILD_CALL,    /* "call": the class is called with the fields as keyword arguments */
    FJ_BUILD_INIT,    /* "init": the same, but as long as the class does not change, its call
                       * does nothing but set the attributes, so they are set directly */
    FJ_BUILD_FILL,    /* "fill": object.__new__, and object.__setattr__ for each attribute */
    FJ_BUILD_PARTIAL, /* "partial": functools.partial.__new__; the fields are the positional
                       * arguments, the keywords and the function */
} FjBuildMode;

/* Which part of a node is compared by the rule for static values. */
typedef enum { FJ_NO_VALUE, FJ_VALUE_IS_AUX, FJ_VALUE_IS_FIRST_OF_AUX } FjNodeValue;

/* What the keys of a node's children are (fj_children_key). */
typedef enum {
    FJ_KEYS_NUMBERS,    /* (0,), (1,), ... */
    FJ_KEYS_OF_KIND,    /* `aux` is its NodeKind: the `keys` or `names` of that, or numbers */
    FJ_KEYS_AUX,        /* the items of `aux` */
    FJ_KEYS_AUX_ITEMS,  /* (key,) for each item of `aux`, after the name of a first child */
    FJ_KEYS_LAST_OF_AUX /* the items of the last item of `aux` */
} FjNodeKeys;

/* What is known of each code: all that a new kind says of itself, but for how its children are
 * read and how it is built (walk/reader.h).  Python uses the names. */
typedef struct {
    const char *name;
    FjNodeValue value;
    FjNodeKeys keys;
    /* Reads what classify() says of a type besides its key, or NULL: 0, or -1 with an error.
     */
    int (*read)(struct FjNodeKind *kind, PyObject *answer);
} FjCodeInfo;

extern const FjCodeInfo fj_code_info[FJ_CODE_COUNT];

struct FjNodeKind {
    PyObject_HEAD FjKindCode code;
    PyTypeObject *type; /* borrowed; valid while `weak` is alive */
    PyObject *weak;     /* weak reference to `type` */

    /* A callable, or NULL: where a value of the type is static, the result of the callable is
     * hashed and compared instead. */
    PyObject *key;
    /* Whether nothing changes what such a value is equal to: NULL if that is not so, True, or
     * a callable that says so of a value. */
    PyObject *immutable;
    /* An FJ_OBJECT kind of the same type, or NULL: two values of the type are equal if these
     * fields of theirs are.  See snapshot.h. */
    FjNodeKind *contents;
    /* Nothing changes such a value itself, which consists of what `key` returns. */
    int key_is_contents;

    /* FJ_NAMEDTUPLE: instances are built by filling in a tuple, without calling the class. */
    int fill_directly;

    /* FJ_NAMEDTUPLE: the interned names of the items, or NULL if they have none.
     * FJ_MODULE, FJ_OBJECT: the interned names of the dynamic fields, then of the static
     * fields, then of the attributes that an instance may have besides (a Module that is a
     * wrapper) or is given when it is built (an object); and the number of each. */
    PyObject *names;
    Py_ssize_t dynamic;
    Py_ssize_t statics;
    Py_ssize_t extra_names;

    /* The key of each field in a path, in the form that fj_children_key returns; NULL if the
     * keys are the names. */
    PyObject *keys;

    /* FJ_MODULE, FJ_OBJECT: where the attributes are in the array that CPython keeps them in,
     * see fields.h. */
    Py_ssize_t *places;  /* the index of each name in the array; -1 until it has been found */
    Py_ssize_t placed;   /* the number of fields whose place has been found ... */
    Py_ssize_t in_order; /* ... and of those whose place is the field's own index */
    Py_ssize_t reach;    /* the largest place of a field + 1 */

    /* FJ_MODULE, FJ_OBJECT: the version of the class for which it was checked that no field's
     * name is a data descriptor; 0 if that has not been checked. */
    unsigned int direct_version;

    /* FJ_OBJECT: */
    FjBuildMode build;
    PyObject *factories;        /* a tuple of callables without arguments, one for each of the
                                 * `extra_names`, whose results are shared by a tree */
    uint8_t *dict_fields;       /* of each field, whether its value is a dict whose items stand
                                 * in its place, as a node of its own */
    Py_ssize_t *offsets;        /* of each name, where its slot is in the instance; 0 if the
                                 * attribute is in the __dict__ */
    Py_ssize_t in_dict;         /* the number of names that are in the __dict__ */
    unsigned int plain_version; /* the version of the class for which `offsets` are right, and
                                 * getattr reads these attributes and nothing else; or 0 */
    unsigned int init_version;  /* the version of the class when it was classified, or 0 */

    PyObject *flatten;   /* FJ_CUSTOM: the function (object) -> (children, aux data) that the
                          * type is registered with, or NULL */
    int is_itself;       /* FJ_CUSTOM: this function returns no children and the object itself,
                          * and building a node returns it */
    PyObject *describe;  /* FJ_DESCRIBED: (object) -> (dynamic, static, keys) or None */
    PyObject *described; /* FJ_DESCRIBED: a dict from what `describe` returned to a NodeKind */
};

/* The number of fields of an FJ_MODULE or FJ_OBJECT. */
static inline Py_ssize_t
fj_node_kind_fields(const FjNodeKind *kind)
{
    return kind->dynamic + kind->statics;
}

/* A new kind of the type, as which nothing has been read yet; NULL with an error. */
FjNodeKind *fj_node_kind_new(PyTypeObject *kinds, PyTypeObject *type);

/* Reads the result of `classify`.  0, or -1 with an error. */
int fj_node_kind_read(FjNodeKind *kind, PyObject *answer);

/* (P) The FJ_MODULE kind of an instance of an FJ_DESCRIBED type: a new reference; `*described`
 * is NULL if the instance is flattened by its registered functions.  0, or -1 with an error.
 */
int fj_node_kind_described(FjNodeKind *kind, PyObject *object, FjNodeKind **described);
