/* The variants of one function under one set of options, by Structure.
 *
 * A Cache belongs to what is wrapped: all wrappers of an equal function with equal options
 * share one.  It holds at most `maxsize` variants and drops the one that was used longest ago.
 */
#ifndef FJ_CACHE_H
#define FJ_CACHE_H

#include "call/bind.h"
#include "base/common.h"
#include "base/table.h"
#include "call/variant.h"

typedef struct {
    PyObject_HEAD FjRegistry *registry;
    FjStructure *function;  /* of the function itself */
    FjSignature *signature; /* how its arguments are bound */
    PyObject *options;      /* the Python side: compiling, errors */
    PyObject *attributes;   /* dict: __name__ and so on, for wrappers that JAX rebuilds */
    FjTable variants;
    size_t maxsize;
    uint64_t clock; /* ticks at each use of a variant */
    unsigned long long calls;
    unsigned long long hits;     /* calls that traced nothing and returned */
    int timed;                   /* whether the next is kept */
    unsigned long long hit_time; /* nanoseconds that hits took, until they returned */
    PyObject *record;            /* the Python side's, for reports; or NULL */
    PyObject *weakrefs;
} FjCache;

extern PyType_Spec fj_cache_spec;

/* (P) The variant for `structure` (hashed): 1 with a new reference, 0, or -1 with the error of
 * a static's __eq__. */
int fj_cache_find(FjCache *cache, FjStructure *structure, FjVariant **variant);

/* Adds a variant.  0 or -1 with an error. */
int fj_cache_add(FjCache *cache, FjVariant *variant);

/* (P) Keeps a variant that was just traced: adds it again where another call of it, which
 * failed, has taken it out, unless there is an equal one by now; and drops the oldest of those
 * that have been traced where there are too many.  0, or -1 with the error of a static's
 * __eq__. */
int fj_cache_insert_traced(FjCache *cache, FjVariant *variant);

/* (P) Takes a variant out; harmless when it is not there. */
void fj_cache_remove(FjCache *cache, FjVariant *variant);

/* The variant that was called after `variant` the last time, borrowed; `variant` itself where
 * that is not known.  Only a guess: what stands at that position may be another by now. */
static inline FjVariant *
fj_cache_predict(const FjCache *cache, FjVariant *variant)
{
    if (FJ_LIKELY(variant->next_variant == 0)) {
        return variant;
    }
    PyObject *next_variant = fj_table_at(&cache->variants, variant->next_variant - 1);
    return next_variant == NULL ? variant : (FjVariant *)next_variant;
}

/* Remembers that `next_variant` was called after `variant`. */
void fj_cache_set_next(const FjCache *cache, FjVariant *variant,
                       const FjVariant *next_variant);

/* Marks a variant as used now. */
static inline void
fj_cache_touch(FjCache *cache, FjVariant *variant)
{
    variant->last_used = ++cache->clock;
}

#endif
