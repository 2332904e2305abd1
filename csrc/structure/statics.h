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
#ifndef FJ_STATICS_H
#define FJ_STATICS_H

#include "base/common.h"
#include "base/state.h"
#include "structure/static_rule.h"

extern PyType_Spec fj_identity_spec;

/* Whether `value` is inert: 1 or 0.  Runs no Python code. */
int fj_static_is_inert(FjRegistry *registry, PyObject *value);

/* (P) Whether nothing can change what `value` is equal to, so that it always equals itself: it
 * is inert, or of a type that says so (FjNodeKind.immutable).  1, 0, or -1 with an error. */
int fj_static_is_immutable(FjRegistry *registry, PyObject *value);

/* Whether `value` would be inert if its __dict__, which is empty, could not change: an
 * instance of a named tuple's subclass, for example.  1 or 0; 0 where another thread may
 * change it.  Runs no Python code. */
int fj_static_has_empty_dict(FjRegistry *registry, PyObject *value);

/* A new mark that is equal only to another one of the same object: for keys. */
PyObject *fj_static_identity(FjState *state, PyObject *value);

/* The hash of an inert value.  0, or -1 with MemoryError. */
int fj_static_hash(FjRegistry *registry, PyObject *value, Py_hash_t *hash);

/* Whether two inert values are equal: 1, 0, or -1 with MemoryError.  Runs no Python code. */
int fj_static_equal(FjRegistry *registry, PyObject *a, PyObject *b);

#endif
