/* Mixing hashes, and hashing an object by its address.  Nothing in this file runs Python
 * code. */
#pragma once

#include "base/common.h"

/* The hash of an object that is compared by identity.  The lowest bits of the address are left
 * out, because alignment makes them the same for all objects. */
static inline Py_uhash_t
fj_hash_address(const void *address)
{
    return (Py_uhash_t)((uintptr_t)address >> 4);
}

/* Mixes `value` into `hash`; the order of the values matters.  This is the round of xxHash
 * that CPython uses for tuples. */
static inline Py_uhash_t
fj_hash_mix(Py_uhash_t hash, Py_uhash_t value)
{
#if SIZEOF_PY_UHASH_T > 4
    hash += value * (Py_uhash_t)14029467366897019727ULL;
    hash = (hash << 31) | (hash >> 33);
    return hash * (Py_uhash_t)11400714785074694791ULL;
#else
    hash += value * (Py_uhash_t)2246822519UL;
    hash = (hash << 13) | (hash >> 19);
    return hash * (Py_uhash_t)2654435761UL;
#endif
}

/* The hash as tp_hash returns it, where -1 means an error. */
static inline Py_hash_t
fj_hash_finish(Py_uhash_t hash)
{
    return hash == (Py_uhash_t)-1 ? -2 : (Py_hash_t)hash;
}
