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

/* The rule of a value.  Up to FJ_INERT_TUPLE, the value is inert. */
typedef enum {
    FJ_BY_IDENTITY,
    FJ_BY_VALUE, /* by ==, which is exact within the type */
    FJ_FLOAT_BITS,
    FJ_COMPLEX_BITS,
    FJ_BY_MARK,     /* by the identity of the marked object: fj_static_identity */
    FJ_INERT_TUPLE, /* a tuple of values with the rules above */
    FJ_TUPLE_ITEMS,
    FJ_SET_ITEMS, /* sets and frozensets */
    FJ_LIST_ITEMS,
    FJ_DICT_ITEMS,
    FJ_BY_REGISTERED_KEY, /* the type has a key in FjRegistry.keyed */
    FJ_BY_TYPE /* by the type's fields or key, or the value's own __eq__ and __hash__ */
} FjStaticRule;

/* True for the rule FJ_BY_VALUE, which most values have. */
static inline int
fj_static_is_by_value(const PyTypeObject *type)
{
    return type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBool_Type ||
           type == &PyBytes_Type || type == Py_TYPE(Py_None);
}

FjStaticRule fj_static_rule_of_others(const FjRegistry *registry, PyObject *value);

/* Runs no Python code. */
static inline FjStaticRule
fj_static_rule(const FjRegistry *registry, PyObject *value)
{
    return FJ_LIKELY(fj_static_is_by_value(Py_TYPE(value)))
               ? FJ_BY_VALUE
               : fj_static_rule_of_others(registry, value);
}

static inline int
fj_static_rule_is_inert(FjStaticRule rule)
{
    return rule <= FJ_INERT_TUPLE;
}

static inline int
fj_static_is_inert(const FjRegistry *registry, PyObject *value)
{
    return fj_static_rule_is_inert(fj_static_rule(registry, value));
}

/* Returns the key of a type in FjRegistry.keyed (borrowed), or NULL. */
PyObject *fj_static_registered_key(const FjRegistry *registry, const PyTypeObject *type);

/* (P) 1 if the kind says that `value` is fixed, 0, or -1 with an error. */
int fj_static_kind_is_fixed(const FjNodeKind *kind, PyObject *value);

/* (P) 1 if a value with this rule is fixed: it is inert, or its kind says so.  0, or -1 with
 * an error. */
int fj_static_is_fixed(FjRegistry *registry, PyObject *value, FjStaticRule rule);

/* True if `value` has no __dict__ or (with a GIL) an empty one.  Runs no Python code. */
int fj_static_has_no_attributes(PyObject *value);

/* Returns a new mark, for keys, that equals only marks of the same object. */
PyObject *fj_static_identity(FjState *state, PyObject *value);

/* For an inert value with this rule.  0, or -1 with MemoryError. */
int fj_static_hash(FjRegistry *registry, PyObject *value, FjStaticRule rule, Py_hash_t *hash);

/* For inert values.  1, 0, or -1 with MemoryError.  Runs no Python code. */
int fj_static_equal(FjRegistry *registry, PyObject *a, PyObject *b);
