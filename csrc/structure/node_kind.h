/* The kind of a type: an array, a static leaf, or a container and how to flatten it. */
#pragma once

#include "base/common.h"
#include "base/state.h"

/* All codes of kinds and of nodes in a Structure.
 *
 *     ROW(code, name in Python, FjNodeValue, FjNodeKeys, reader)
 *
 * walk/kinds.h declares the readers. */
#define FJ_CODES(ROW)                                                                         \
    /* Leaves: traced; an array or a static, depending on the instance (tracers); static. */  \
    ROW(FJ_ARRAY, "array", FJ_NO_VALUE, FJ_KEYS_NUMBERS, fj_no_reader)                        \
    ROW(FJ_MAYBE_ARRAY, "maybe_array", FJ_NO_VALUE, FJ_KEYS_NUMBERS, fj_no_reader)            \
    ROW(FJ_STATIC, "static", FJ_VALUE_IS_AUX, FJ_KEYS_NUMBERS, fj_no_reader)                  \
    /* Containers that the core flattens and builds itself.  None has no children. */         \
    ROW(FJ_NONE, "none", FJ_NO_VALUE, FJ_KEYS_NUMBERS, fj_no_reader)                          \
    ROW(FJ_TUPLE, "tuple", FJ_NO_VALUE, FJ_KEYS_NUMBERS, fj_tuple_reader)                     \
    ROW(FJ_LIST, "list", FJ_NO_VALUE, FJ_KEYS_NUMBERS, fj_list_reader)                        \
    /* Children sorted by key; in insertion order; sorted, with a static default_factory. */  \
    ROW(FJ_DICT, "dict", FJ_VALUE_IS_AUX, FJ_KEYS_AUX_ITEMS, fj_dict_reader)                  \
    ROW(FJ_ORDERED_DICT, "ordered_dict", FJ_VALUE_IS_AUX, FJ_KEYS_AUX_ITEMS, fj_dict_reader)  \
    ROW(FJ_DEFAULT_DICT, "default_dict", FJ_VALUE_IS_AUX, FJ_KEYS_AUX_ITEMS, fj_dict_reader)  \
    ROW(FJ_NAMEDTUPLE, "namedtuple", FJ_NO_VALUE, FJ_KEYS_OF_KIND, fj_namedtuple_reader)      \
    /* All attributes in the instance's __dict__: an Equinox Module. */                       \
    ROW(FJ_MODULE, "module", FJ_NO_VALUE, FJ_KEYS_OF_KIND, fj_module_reader)                  \
    /* Some attributes of the instance, by name: a dataclass. */                              \
    ROW(FJ_OBJECT, "object", FJ_NO_VALUE, FJ_KEYS_OF_KIND, fj_object_reader)                  \
    /* Any other container.  A Python callback flattens it one level at a time. */            \
    ROW(FJ_CUSTOM, "custom", FJ_VALUE_IS_FIRST_OF_AUX, FJ_KEYS_LAST_OF_AUX, fj_custom_reader) \
    /* Each instance decides which of its attributes are children and which are static.  The  \
     * node is an FJ_CUSTOM, or an FJ_MODULE with one kind per such set. */                   \
    ROW(FJ_DESCRIBED, "described", FJ_NO_VALUE, FJ_KEYS_NUMBERS, fj_described_reader)         \
    /* Nodes only, never the kind of a type: the root of a call, with one child per           \
     * parameter; an absent field or argument; a further occurrence of an earlier object      \
     * (Sharing in structure.h). */                                                           \
    ROW(FJ_ARGUMENTS, "arguments", FJ_NO_VALUE, FJ_KEYS_AUX, fj_no_reader)                    \
    ROW(FJ_MISSING, "missing", FJ_NO_VALUE, FJ_KEYS_NUMBERS, fj_no_reader)                    \
    ROW(FJ_REF, "ref", FJ_VALUE_IS_AUX, FJ_KEYS_NUMBERS, fj_no_reader)

#define FJ_CODE_OF_ROW(code, name, value, keys, reader) code,
typedef enum { FJ_CODES(FJ_CODE_OF_ROW) FJ_CODE_COUNT } FjKindCode;

#define FJ_KIND_COUNT FJ_ARGUMENTS /* the kinds of types come before it */

/* How to build an FJ_OBJECT.  Python uses the names in the comments. */
typedef enum {
    FJ_BUILD_CALL,    /* "call": call the class with the fields as keyword arguments */
    FJ_BUILD_INIT,    /* "init": set the attributes directly while the class is unchanged,
                       * because its call only does that; otherwise like "call" */
    FJ_BUILD_FILL,    /* "fill": object.__new__, then object.__setattr__ per attribute */
    FJ_BUILD_PARTIAL, /* "partial": functools.partial.__new__; the fields are the positional
                       * arguments, the keywords and the function */
} FjBuildMode;

/* The part of a node that the rule for static values compares. */
typedef enum { FJ_NO_VALUE, FJ_VALUE_IS_AUX, FJ_VALUE_IS_FIRST_OF_AUX } FjNodeValue;

/* The keys of a node's children (fj_children_key). */
typedef enum {
    FJ_KEYS_NUMBERS,    /* (0,), (1,), ... */
    FJ_KEYS_OF_KIND,    /* `keys` or `names` of the NodeKind in `aux`, or numbers */
    FJ_KEYS_AUX,        /* the items of `aux` */
    FJ_KEYS_AUX_ITEMS,  /* (key,) per item of `aux`, after the name of an extra first child */
    FJ_KEYS_LAST_OF_AUX /* the items of the last item of `aux` */
} FjNodeKeys;

/* The facts about a code, except how to read and build it: see walk/kinds.h. */
typedef struct {
    const char *name;
    FjNodeValue value;
    FjNodeKeys keys;
} FjCodeInfo;

extern const FjCodeInfo fj_code_info[FJ_CODE_COUNT];

struct FjNodeKind {
    PyObject_HEAD FjKindCode code;
    PyTypeObject *type; /* borrowed; valid while `weak` is alive */
    PyObject *weak;

    /* A callable, or NULL: static values of the type are compared by its result. */
    PyObject *key;
    /* The fixed values (statics.h): NULL (none), True (all), or (value) -> bool. */
    PyObject *fixed;
    /* An FJ_OBJECT kind, or NULL: values are equal if these fields are (snapshot.h). */
    FjNodeKind *contents;
    /* Values equal themselves while the contents of what `key` returns do. */
    int key_is_contents;

    /* FJ_NAMEDTUPLE: build instances by filling a tuple, without calling the class. */
    int fill_directly;

    /* FJ_NAMEDTUPLE: the interned names of the items, or NULL.  FJ_MODULE, FJ_OBJECT: the
     * interned names of the dynamic fields, the static fields and extra attributes (of a
     * wrapper Module, or set when building an object), and the number of each. */
    PyObject *names;
    Py_ssize_t dynamic;
    Py_ssize_t statics;
    Py_ssize_t extra_names;

    /* The path key of each field (fj_children_key).  NULL if the keys are the names. */
    PyObject *keys;

    /* FJ_MODULE, FJ_OBJECT: the *places* of the attributes (fields.h). */
    Py_ssize_t *places;  /* of each name; -1 until found */
    Py_ssize_t placed;   /* number of fields with a known place ... */
    Py_ssize_t in_order; /* ... and of those with the field's index as their place */
    Py_ssize_t reach;    /* largest place of a field + 1 */

    /* FJ_MODULE, FJ_OBJECT: a class version without data descriptors for fields, or 0. */
    unsigned int direct_version;

    /* FJ_OBJECT: */
    FjBuildMode build;
    PyObject *factories;  /* a tuple of callables without arguments, one for each of the
                           * `extra_names`; a tree shares their results */
    uint8_t *dict_fields; /* true for a dict field, which has its own DICT node; or NULL */
    Py_ssize_t *offsets;  /* slot of each name in the instance; 0 if it is in the __dict__ */
    Py_ssize_t in_dict;   /* number of names in the __dict__ */
    unsigned int plain_version; /* the class version for which `offsets` hold and getattr reads
                                 * nothing else, or 0 */
    unsigned int init_version;  /* the version of the class when it was classified, or 0 */

    PyObject
        *flatten;   /* FJ_CUSTOM, or NULL: (object) -> (children, aux data), as registered */
    int is_its_aux; /* FJ_CUSTOM: `flatten` returns no children, and the object as aux data */
    PyObject *describe;  /* FJ_DESCRIBED: (object) -> (dynamic, static, keys) or None */
    PyObject *described; /* FJ_DESCRIBED: a dict from results of `describe` to NodeKinds */
};

static inline Py_ssize_t
fj_node_kind_fields(const FjNodeKind *kind)
{
    return kind->dynamic + kind->statics;
}

/* Returns a new kind for fj_node_kind_read. */
FjNodeKind *fj_node_kind_new(PyTypeObject *kinds, PyTypeObject *type);

/* Reads the result of `classify`: a dict with the members of a kind by name. */
int fj_node_kind_read(FjNodeKind *kind, PyObject *answer);

/* (P) Sets `*described` to the FJ_MODULE kind of an instance of an FJ_DESCRIBED type (new
 * reference), or to NULL if the registered functions flatten the instance. */
int fj_node_kind_described(FjNodeKind *kind, PyObject *object, FjNodeKind **described);
