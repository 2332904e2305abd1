/* Hash and equality of static values: exact by type, then by value.
 *
 * 1, True and 1.0 are three values here, and so are 0.0 and -0.0; a NaN equals itself.
 * Tuples and frozensets are compared element by element by the same rule; a type whose kind
 * has a `key` by its key; anything else by its own == and hash.
 *
 * A value is *inert* when neither hashing nor comparing it can run Python code and nothing
 * can change what it equals: then the same address is proof of equality.
 *
 * Any other may change later on, so it is *frozen* before it is looked at: what it is made of
 * at that moment, which nobody can change and which holds all that it was made of.  Frozen
 * values alone are hashed and compared, so that what a value was can be told from what it is,
 * also where it is the very same object.  What has an == of its own, and an inert value, is
 * frozen as it is.
 *
 * Leaves must be hashable, as they must for jax.jit.  Static fields and aux data need not be
 * (JAX does not hash aux data): in a *field*, lists, dicts and sets count by their contents,
 * and whatever else has no hash by its identity.
 *
 * Functions marked (P) may run Python code; on inert values they do not.
 */
#ifndef FJ_STATICS_H
#define FJ_STATICS_H

#include "base/common.h"
#include "base/state.h"

extern PyType_Spec fj_frozen_spec;

/* 1 when `value` is inert.  Runs no Python code. */
int fj_static_is_inert(FjRegistry *registry, PyObject *value);

/* (P) A new reference to what `value` is now, frozen; NULL with the error that taking it apart
 * raised, or that it has no hash.  `field`: see above. */
PyObject *fj_static_freeze(FjRegistry *registry, PyObject *value, int field);

/* A new reference to what equals nothing but itself made of the very same object. */
PyObject *fj_static_identity(FjState *state, PyObject *value);

/* (P) 0, or -1 with the error that hashing raised. */
int fj_static_hash(FjRegistry *registry, PyObject *frozen, Py_hash_t *hash);

/* (P) 1, 0, or -1 with the error that comparing raised.  Where an object is in both that has
 * an == of its own, the caller compares hashes too: it may have changed since. */
int fj_static_equal(FjRegistry *registry, PyObject *a, PyObject *b);

/* (P) The same of two values as they are now. */
int fj_static_equal_now(FjRegistry *registry, PyObject *a, PyObject *b);

#endif
