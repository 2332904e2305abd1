/* Hash and equality of static values, which are exact: types are compared, then values.
 *
 * Static values are the leaves of a pytree that are not arrays, the values of static fields,
 * and aux data.  1, True and 1.0 are three different values, and so are 0.0 and -0.0; a NaN is
 * equal to a NaN with the same bits.  The one rule below holds wherever a static value stands,
 * also in containers and keys; python/filterjit/_trees/_static_keys.py has the table of types.
 *
 * - Elements of tuples, lists, sets and frozensets and items of dicts are compared by the
 * rule.
 * - Types without an __eq__ of their own are compared by identity.
 * - Types that say by which fields their values are compared (FjNodeKind.contents) are
 *   compared by these.
 * - Other types that have a key (FjNodeKind.key, FjRegistry.keyed) are compared by the key of
 *   each value: its contents.
 * - All other types are compared by their own __eq__ and __hash__.
 *
 * A value is *inert* when neither hashing nor comparing it can run Python code and nothing can
 * change what it is equal to.  So inert values are equal if their addresses are.  A value that
 * is not inert may change later, so it is hashed and compared by its *snapshot* (snapshot.h).
 *
 * Leaves must be hashable, as for jax.jit.  The values of static fields and aux data, both of
 * which are called *fields* here, need not be (JAX does not hash aux data): without a key, a
 * value that cannot be hashed is compared by identity.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "base/state.h"
#include "structure/registry.h"

/* ---- the rule of a type ---- */

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

/* ---- values ---- */

/* Whether `value` is inert: 1 or 0.  Runs no Python code. */
int fj_static_is_inert(FjRegistry *registry, PyObject *value);

/* (P) Whether nothing can change what `value` is equal to, so that it always equals itself: it
 * is inert, or of a type that says so (FjNodeKind.immutable).  1, 0, or -1 with an error. */
int fj_static_is_immutable(FjRegistry *registry, PyObject *value);

/* Whether a value has no __dict__, or an empty one: 1 or 0; 0 where another thread may fill
 * it. Runs no Python code. */
int fj_static_has_no_attributes(PyObject *value);

/* A new mark that is equal only to another one of the same object: for keys. */
PyObject *fj_static_identity(FjState *state, PyObject *value);

/* The hash of an inert value.  0, or -1 with MemoryError. */
int fj_static_hash(FjRegistry *registry, PyObject *value, Py_hash_t *hash);

/* Whether two inert values are equal: 1, 0, or -1 with MemoryError.  Runs no Python code. */
int fj_static_equal(FjRegistry *registry, PyObject *a, PyObject *b);
