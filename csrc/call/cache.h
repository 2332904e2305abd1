/* The variants of one function with one set of settings, by the Structure of the arguments.
 *
 * All FilterJits of an equal function with equal settings share one Cache.  This is how a
 * variant gets into the Cache and out of it:
 *
 * - A call that misses adds the variant that it has compiled before it is traced, so that
 *   other threads find it (fj_cache_add).
 * - A call that fails removes its variant if it has never been traced to the end, and has
 *   never run without a trace, as variants do under jax.disable_jit (fj_variant_is_kept,
 *   fj_cache_remove).  If another thread's call of that variant succeeds later, it adds it
 *   again.
 * - A call that has traced its variant, or that is the first to run it without a trace, makes
 *   sure that the Cache has it, and then, while the Cache keeps more than `maxsize` variants,
 *   evicts the one of them that was used longest ago (fj_cache_insert_traced).  Other variants
 *   do not count and are not evicted: the calls that have compiled them are still running and
 *   may fail.
 * - Cache.clear evicts all variants, and drops those of the last calls of its FilterJits.
 *
 * Calls, and FilterJits for their last call, may still hold a variant that has been evicted.
 * It is marked, so that no call uses it as a prediction and no call inserts it again.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "base/table.h"
#include "call/bind.h"
#include "call/variant.h"

/* What a FilterJit holds of its last calls. */
typedef struct FjLast {
    struct FjLast *next, **place; /* of the FilterJits of one Cache, and what points to this */
    FjVariant *variants[FJ_LANES][FJ_LANE_WORDS]; /* of each lane, or NULL */
} FjLast;

/* The variant of the last call of this lane of threads, which the caller owns, or NULL.
 *
 * Without a GIL the call takes the FilterJit's own reference, and gives it back: the count of
 * the references to a variant that all threads call would go from core to core. */
static inline FjVariant *
fj_last_take(FjLast *last)
{
#if FJ_FREE_THREADED
    return fj_exchange(&last->variants[fj_lane()][0], NULL);
#else
    return (FjVariant *)Py_XNewRef((PyObject *)last->variants[0][0]);
#endif
}

/* (P) Makes a variant, which is stolen, that of the last call of this lane. */
static inline void
fj_last_give(FjLast *last, FjVariant *variant)
{
    FjVariant *before = fj_exchange(&last->variants[fj_lane()][0], variant);
    Py_XDECREF(before);
}

typedef struct {
    PyObject_HEAD FjRegistry *registry;
    FjStructure *function;  /* Structure of the function itself */
    FjSignature *signature; /* how its arguments are bound */
    PyObject *hooks;        /* the Python object whose methods are the hooks: call_hooks.c */
    PyObject *attributes;   /* dict: __name__ and so on, for a FilterJit that JAX unflattens */
    FjTable variants;
    FjLast *last; /* of one of its FilterJits */
    size_t maxsize;
    uint64_t clock; /* `last_used` of the variant that was used last */
    int timed;      /* whether hits are timed */
    FjTimes times;
    PyObject *record; /* a FunctionRecord of the package _observe, or NULL */
    PyObject *weakrefs;
    FjCount calls;
    FjCount hits; /* calls that a program ran, and that did not trace */
} FjCache;

/* These functions lock the Cache. */

/* (P) Looks up the variant of `structure`, which has been hashed.  1 with a new reference in
 * `*variant`, 0 if there is none, or -1 with the error of a static's __eq__. */
int fj_cache_find(FjCache *cache, FjStructure *structure, FjVariant **variant);

/* Adds a variant; there must be no equal one.  0, or -1 with MemoryError. */
int fj_cache_add(FjCache *cache, FjVariant *variant);

/* (P) Inserts a variant that has just been traced, or has just run for the first time, unless
 * the Cache has it, or an equal one, or has evicted it.  Then evicts the oldest if there are
 * too many.  0, or -1 with MemoryError or the error of a static's __eq__. */
int fj_cache_insert_traced(FjCache *cache, FjVariant *variant);

/* (P) Removes a variant; does nothing if the Cache does not have it. */
void fj_cache_remove(FjCache *cache, FjVariant *variant);

/* Makes what a FilterJit holds known to its Cache, once; and unknown, before it dies. */
void fj_cache_join(FjCache *cache, FjLast *last);
void fj_cache_leave(FjCache *cache, FjLast *last);

/* ---- the next variant ---- */

/* Predicts which variant is called after `variant`: the one that was called after it the last
 * time, or `variant` itself if none has been called after it.  Borrowed.  The table may have
 * another variant at the remembered position by now, so the prediction can be any variant.
 * The caller has locked the Cache. */
static inline FjVariant *
fj_cache_predict(const FjCache *cache, FjVariant *variant)
{
    PyObject *next_variant = variant->next_variant == 0
                                 ? NULL
                                 : fj_table_at(&cache->variants, variant->next_variant - 1);
    return next_variant == NULL ? variant : (FjVariant *)next_variant;
}

/* Remembers that `next_variant` was called after `variant`, for fj_cache_predict. */
void fj_cache_set_next(FjCache *cache, FjVariant *variant, const FjVariant *next_variant);

/* Marks a variant as the one that was used last. */
static inline void
fj_cache_touch(FjCache *cache, FjVariant *variant)
{
    if (FJ_UNLIKELY(FJ_LOAD_COUNT(variant->last_used) != FJ_LOAD_COUNT(cache->clock))) {
        FJ_STORE_COUNT(variant->last_used, FJ_ADD(cache->clock, 1));
    }
}
