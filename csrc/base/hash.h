/* Hash mixing, and the hash of an address.  Runs no Python code. */
#pragma once

#include "base/common.h"

/* Drops the lowest bits, which alignment makes equal for all objects. */
static inline Py_uhash_t
fj_hash_address(const void *address)
{
    return (Py_uhash_t)((uintptr_t)address >> 4);
}

_Static_assert(sizeof(Py_uhash_t) == 8, "the shifts and factors are for 64 bits");

/* Mixes `value` into `hash`, depending on order: a round of xxHash, as in CPython's tuples. */
static inline Py_uhash_t
fj_hash_mix(Py_uhash_t hash, Py_uhash_t value)
{
    hash += value * (Py_uhash_t)14029467366897019727ULL;
    hash = (hash << 31) | (hash >> 33);
    return hash * (Py_uhash_t)11400714785074694791ULL;
}

/* tp_hash reserves -1 for errors. */
static inline Py_hash_t
fj_hash_finish(Py_uhash_t hash)
{
    return hash == (Py_uhash_t)-1 ? -2 : (Py_hash_t)hash;
}
