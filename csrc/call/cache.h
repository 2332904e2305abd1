/* The variants of one function with one set of settings, by the Structure of the arguments.
 *
 * All FilterJits of an equal function with equal settings share one Cache.  Variants enter and
 * leave it like this:
 *
 * - A call that misses compiles a variant and adds it before tracing it, for other threads to
 *   find (fj_cache_add).
 * - A call that fails removes its variant if it was never traced to the end and never ran
 *   without a trace, as under jax.disable_jit (fj_variant_is_cached, fj_cache_remove).  If a
 *   different thread's call of the variant succeeds later, that call re-adds it.
 * - A call that traces its variant, or first runs it without a trace, makes sure that the
 *   Cache has it.  While more than `maxsize` variants are then cached, evicts the least
 *   recently used one (fj_cache_insert_traced).  Other variants aren't counted or
 *   evicted: the calls that compiled them are still running and might fail.
 * - Cache.clear evicts all variants.
 *
 * Calls can hold an evicted variant.  It is never predicted or inserted. */
#pragma once

#include "base/common.h"
#include "base/table.h"
#include "call/bind.h"
#include "call/variant.h"

/* Variants that a call compares its arguments with before it flattens them. */
#define FJ_CACHE_RECENT 8

typedef struct {
    PyObject_HEAD FjRegistry *registry;
    FjStructure *function;  /* Structure of the function itself */
    FjSignature *signature; /* binds its arguments */
    PyObject *hooks;        /* a Python object with the hooks as methods: call_hooks.c */
    PyObject *attributes;   /* dict: __name__ and so on, for a FilterJit that JAX unflattens */
    FjTable variants;
    size_t maxsize;
    Py_ssize_t recent[FJ_CACHE_RECENT]; /* 1 + positions in `variants` of some that calls have
                                         * switched to, the last one first; or 0 */
    uint64_t clock;                     /* `last_used` of the most recently used variant */
    int timed;                          /* hits are timed */
    FjTimes times;
    PyObject *record; /* a FunctionRecord of the package _observe, or NULL */
    PyObject *weakrefs;
    FjCount calls;
    FjCount hits;                             /* calls that ran a program and didn't trace */
    FjVariant *last[FJ_LANES][FJ_LANE_WORDS]; /* called last by each lane (owned), or NULL */
} FjCache;

/* Returns the variant that this thread lane called last (new reference), or NULL.
 *
 * Without a GIL, the call steals the Cache's own reference and gives it back later.  Otherwise
 * the reference count of a popular variant would move from core to core. */
static inline FjVariant *
fj_cache_last(FjCache *cache)
{
#if FJ_FREE_THREADED
    return fj_exchange(&cache->last[fj_lane()][0], NULL);
#else
    return (FjVariant *)Py_XNewRef((PyObject *)cache->last[0][0]);
#endif
}

/* (P) Makes `variant` (stolen) the last one of this lane. */
static inline void
fj_cache_set_last(FjCache *cache, FjVariant *variant)
{
    FjVariant *before = fj_exchange(&cache->last[fj_lane()][0], variant);
    Py_XDECREF(before);
}

/* These functions lock the Cache. */

/* (P) Looks up the variant of `structure`, which must be hashed.  1 with a new reference in
 * `*variant`, 0, or -1 with the error of a static's __eq__. */
int fj_cache_find(FjCache *cache, FjStructure *structure, FjVariant **variant);

/* Adds a variant.  The Cache must have no equal one.  0, or -1 with MemoryError. */
int fj_cache_add(FjCache *cache, FjVariant *variant);

/* (P) Inserts a variant that was just traced or first run, unless the Cache has it or an equal
 * one, or has evicted it.  Then evicts the oldest variants beyond `maxsize`.  0, or -1 with
 * MemoryError or the error of a static's __eq__. */
int fj_cache_insert_traced(FjCache *cache, FjVariant *variant);

/* (P) No-op if the Cache doesn't have the variant. */
void fj_cache_remove(FjCache *cache, FjVariant *variant);

/* Predicts the variant that is called after `variant`: the one called after it last time, or
 * itself.  Borrowed.  The remembered table position can hold a different variant by this time,
 * so the prediction can be any variant.  The caller has locked the Cache. */
static inline FjVariant *
fj_cache_predict(const FjCache *cache, FjVariant *variant)
{
    PyObject *next_variant = variant->next_variant == 0
                                 ? NULL
                                 : fj_table_at(&cache->variants, variant->next_variant - 1);
    return next_variant == NULL ? variant : (FjVariant *)next_variant;
}

/* Returns a variant that calls have switched to (borrowed): the last one for i = 0.  NULL
 * without one.  A position can hold a different variant by this time. */
static inline FjVariant *
fj_cache_recent(const FjCache *cache, int i)
{
    Py_ssize_t position = cache->recent[i];
    return position == 0 ? NULL : (FjVariant *)fj_table_at(&cache->variants, position - 1);
}

/* Records that `next_variant` was called after `variant`. */
void fj_cache_set_next(FjCache *cache, FjVariant *variant, const FjVariant *next_variant);

/* Makes a variant the most recently used. */
static inline void
fj_cache_touch(FjCache *cache, FjVariant *variant)
{
    if (FJ_UNLIKELY(FJ_LOAD_COUNT(variant->last_used) != FJ_LOAD_COUNT(cache->clock))) {
        FJ_STORE_COUNT(variant->last_used, FJ_ADD(cache->clock, 1));
    }
}
