/* Exact hash and equality of static values: types are compared, then values.
 *
 * Static values are leaves that aren't arrays, the values of static fields, and aux data.  1,
 * True and 1.0 are three different values, and so are 0.0 and -0.0.  A NaN equals a NaN with
 * the same bits.  One rule holds for all static values, inside containers and keys too.
 * python/filterjit/_trees/_values.py has the table of types.
 *
 * - Elements of tuples, lists, sets and frozensets and items of dicts compare by this rule.
 * - Types without their own __eq__ compare by identity.
 * - Types with known contents (FjNodeKind.contents) compare by these fields.
 * - Other types with a key (FjNodeKind.key, FjRegistry.keyed) compare by the key of each
 *   value: its contents.
 * - All other types compare by their own __eq__ and __hash__.
 *
 * Three words say what can change the values that a static equals, and what comparing runs:
 *
 *     word    what can change it  compared with itself   with others        examples
 *     ------  ------------------  ---------------------  -----------------  -----------------
 *     inert   nothing             equal                  runs no Python     1, "a", (1, "a"),
 *                                                                           functions
 *     fixed   nothing             equal                  can run Python     a Mesh, classes
 *     itself  its contents        equal if they are      can run Python     frozensets, bound
 *                                                                           methods
 *
 * An inert value is fixed, too.  A value that isn't inert is hashed and compared by its
 * *snapshot* (snapshot.h).
 *
 * Leaves must be hashable, as for jax.jit.  Static fields and aux data, called *fields* here,
 * can be unhashable (JAX doesn't hash them).  Without a key they compare by identity. */
#pragma once

#include "base/common.h"
#include "base/state.h"
#include "structure/registry.h"

/* ---- the rule of a type ---- */

/* Values with the rules up to FJ_BY_MARK are inert, and so are tuples of them. */
typedef enum {
    FJ_BY_IDENTITY,
    FJ_BY_VALUE, /* by ==, which is exact within the type */
    FJ_FLOAT_BITS,
    FJ_COMPLEX_BITS,
    FJ_BY_MARK, /* by the identity of the marked object: fj_static_identity */
    FJ_TUPLE_ITEMS,
    FJ_SET_ITEMS, /* sets and frozensets */
    FJ_LIST_ITEMS,
    FJ_DICT_ITEMS,
    FJ_BY_TYPE /* by the type's fields or key, or the value's own __eq__ and __hash__ */
} FjStaticRule;

/* Returns the key of a type in FjRegistry.keyed (borrowed), or NULL. */
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

/* True if `type` inherits the __eq__ and __hash__ of `base`. */
static inline int
fj_static_compares_like(const PyTypeObject *type, const PyTypeObject *base)
{
    return type->tp_richcompare == base->tp_richcompare && type->tp_hash == base->tp_hash;
}

/* True if `type` is `base` or a subclass that adds no __eq__ and no attributes.  A final type
 * is written in C and can hold more than its size shows, as struct sequences do before 3.13:
 * time.struct_time is a tuple of nine items with two more behind them. */
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

/* True if all values of the rule are inert, whatever they contain. */
static inline int
fj_static_rule_is_inert(FjStaticRule rule)
{
    return rule <= FJ_BY_MARK;
}

/* (P) 1 if the kind says that `value` is fixed, 0, or -1 with an error. */
static inline int
fj_static_kind_is_fixed(const FjNodeKind *kind, PyObject *value)
{
    PyObject *fixed = kind->fixed;
    return FJ_LIKELY(fixed == NULL) ? 0
           : fixed == Py_True       ? 1
                                    : fj_steal_truth(PyObject_CallOneArg(fixed, value));
}

/* (P) Returns the key of a value. */
static inline PyObject *
fj_static_key(PyObject *function, PyObject *value)
{
    Py_INCREF(function);
    PyObject *key = PyObject_CallOneArg(function, value);
    Py_DECREF(function);
    return key;
}

/* Runs no Python code. */
int fj_static_is_inert(FjRegistry *registry, PyObject *value);

/* (P) 1 if `value` is fixed: it is inert, or its kind says so.  0, or -1 with an error. */
int fj_static_is_fixed(FjRegistry *registry, PyObject *value);

/* True if `value` has no __dict__ or (with a GIL) an empty one.  Runs no Python code. */
int fj_static_has_no_attributes(PyObject *value);

/* Returns a new mark, for keys, that equals only marks of the same object. */
PyObject *fj_static_identity(FjState *state, PyObject *value);

/* For inert values.  0, or -1 with MemoryError. */
int fj_static_hash(FjRegistry *registry, PyObject *value, Py_hash_t *hash);

/* For inert values.  1, 0, or -1 with MemoryError.  Runs no Python code. */
int fj_static_equal(FjRegistry *registry, PyObject *a, PyObject *b);
