/* How the static values of a type are compared: statics.h has the rules.
 *
 * Functions marked (P) may run Python code. */
#ifndef FJ_STATIC_RULE_H
#define FJ_STATIC_RULE_H

#include "structure/registry.h"

/* Values with the rules up to FJ_BY_MARK are inert; so are tuples of such values. */
typedef enum {
    FJ_BY_IDENTITY,
    FJ_BY_VALUE, /* by ==, which is exact for two values of the type */
    FJ_FLOAT_BITS,
    FJ_COMPLEX_BITS,
    FJ_BY_MARK, /* by the identity of what it stands for: fj_static_identity */
    FJ_TUPLE_ITEMS,
    FJ_SET_ITEMS, /* of sets and frozensets */
    FJ_LIST_ITEMS,
    FJ_DICT_ITEMS,
    FJ_BY_TYPE /* by the fields or the key of the type, or by the value's own __eq__ and
                  __hash__ */
} FjStaticRule;

/* The key of a type in FjRegistry.keyed, borrowed, or NULL. */
static inline PyObject *
fj_static_registered_key(const FjRegistry *registry, const PyTypeObject *type)
{
    if (FJ_LIKELY(registry->keyed == NULL)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(registry->keyed); i++) {
        PyObject *pair = PyTuple_GET_ITEM(registry->keyed, i);
        if (PyTuple_GET_ITEM(pair, 0) == (const PyObject *)type) {
            return PyTuple_GET_ITEM(pair, 1);
        }
    }
    return NULL;
}

/* Whether a type inherits the __eq__ and __hash__ of `base`. */
static inline int
fj_static_compares_like(const PyTypeObject *type, const PyTypeObject *base)
{
    return type->tp_richcompare == base->tp_richcompare && type->tp_hash == base->tp_hash;
}

/* Whether a type is `base`, or a subclass that adds neither an __eq__ nor attributes.  One
 * that cannot be subclassed is written in C and may hold more than its size tells, as a struct
 * sequence does before 3.13: time.struct_time is a tuple of nine items with two more behind
 * them. */
static inline int
fj_static_is_like(const PyTypeObject *type, const PyTypeObject *base)
{
    return fj_static_compares_like(type, base) && type->tp_dictoffset == base->tp_dictoffset &&
           type->tp_basicsize == base->tp_basicsize &&
           (type == base || (type->tp_flags & Py_TPFLAGS_BASETYPE));
}

static inline FjStaticRule
fj_static_rule(const FjRegistry *registry, PyTypeObject *type)
{
    if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBool_Type ||
        type == &PyBytes_Type || type == Py_TYPE(Py_None)) {
        return FJ_BY_VALUE;
    }
    if (fj_static_registered_key(registry, type) != NULL) {
        return FJ_BY_TYPE;
    }
    return fj_static_compares_like(type, &PyBaseObject_Type) ? FJ_BY_IDENTITY
           : fj_static_is_like(type, &PyFloat_Type)          ? FJ_FLOAT_BITS
           : fj_static_is_like(type, &PyComplex_Type)        ? FJ_COMPLEX_BITS
           : fj_static_is_like(type, &PyTuple_Type)          ? FJ_TUPLE_ITEMS
           : type == registry->state->identity               ? FJ_BY_MARK
           : fj_static_is_like(type, &PyFrozenSet_Type)      ? FJ_SET_ITEMS
           : type == &PyList_Type                            ? FJ_LIST_ITEMS
           : type == &PyDict_Type                            ? FJ_DICT_ITEMS
           : type == &PySet_Type                             ? FJ_SET_ITEMS
                                                             : FJ_BY_TYPE;
}

/* Whether values of the rule are inert, whatever is in them. */
static inline int
fj_static_rule_is_inert(FjStaticRule rule)
{
    return rule <= FJ_BY_MARK;
}

/* (P) Whether the kind says of a value that nothing can change what it is equal to: 1, 0, or
 * -1 with an error. */
static inline int
fj_static_kind_is_immutable(const FjNodeKind *kind, PyObject *value)
{
    PyObject *immutable = kind->immutable;
    return FJ_LIKELY(immutable == NULL) ? 0
           : immutable == Py_True       ? 1
                                        : fj_take_truth(PyObject_CallOneArg(immutable, value));
}

/* (P) The key of a value, by this function: a new reference, or NULL with an error. */
static inline PyObject *
fj_static_key(PyObject *function, PyObject *value)
{
    Py_INCREF(function);
    PyObject *key = PyObject_CallOneArg(function, value);
    Py_DECREF(function);
    return key;
}

#endif
