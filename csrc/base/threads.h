/* What several threads may use at once, in builds without a GIL.
 *
 * With the GIL all of this is nothing: a lock is a block of code, a load an expression.
 *
 * A lock is CPython's critical section of an object.  It is given up where the thread blocks
 * or runs Python code, and taken again afterwards, as the GIL is.  So the rule is the one that
 * holds with a GIL: what runs Python code looks again at what it has seen before.  What is
 * locked, and by whom:
 *
 *   Registry     its kinds
 *   Structure    its hash and snapshots, the models of its dicts, its paths
 *   Cache        the variants, which one a FilterJit calls next, and its FilterJits
 *   Variant      its traces and what is deferred
 *   FilterJit    its cache and arrays, once, before the first call
 *   Direct       its entries, and what these have learned; each lane has one of its own
 *   VariableJit  its states and its reason
 *   NodeKind     what has been found out of its class
 *
 * What each call writes would go from core to core, if all threads wrote it in one place.  So
 * some of it has a place for each *lane*: threads are dealt out to a few lanes by their
 * numbers, and those of one lane share its place.
 *
 * All else is never changed once other threads can see it, or is the user's: of that, a walk
 * holds each object that it has read, and reads a container by functions that lock it.
 *
 * No lock is held while an executable runs, or while JAX traces, lowers or compiles: those run
 * Python code, or release what they hold.
 */
#pragma once

#include "base/compat.h"

#if FJ_FREE_THREADED

/* A block that only one thread runs at a time: no `return` or `goto` may leave it. */
#define FJ_LOCK(object) Py_BEGIN_CRITICAL_SECTION(object)
#define FJ_UNLOCK() Py_END_CRITICAL_SECTION()

#define FJ_LOAD_INT(place) _Py_atomic_load_int_acquire(&(place))
#define FJ_STORE_INT(place, value) _Py_atomic_store_int_release(&(place), (value))
#define FJ_LOAD_SIZE(place) _Py_atomic_load_ssize_acquire(&(place))
#define FJ_STORE_SIZE(place, value) _Py_atomic_store_ssize_release(&(place), (value))
#define FJ_LOAD_UINT(place) ((unsigned int)_Py_atomic_load_int_acquire((const int *)&(place)))
#define FJ_STORE_UINT(place, value) _Py_atomic_store_uint_release(&(place), (value))
#define FJ_LOAD_POINTER(place) _Py_atomic_load_ptr_acquire(&(place))
#define FJ_STORE_POINTER(place, value) _Py_atomic_store_ptr_release(&(place), (value))

/* Adds to a counter, an `unsigned long long`: its new value. */
#define FJ_ADD(place, more) (_Py_atomic_add_uint64((uint64_t *)&(place), (more)) + (more))
#define FJ_LOAD_COUNT(place) _Py_atomic_load_uint64_relaxed((const uint64_t *)&(place))
#define FJ_STORE_COUNT(place, value)                                                          \
    _Py_atomic_store_uint64_relaxed((uint64_t *)&(place), value)

#define FJ_LANES 8
#define FJ_LANE_WORDS 8 /* of a place, so that no two are in one line of a cache */
#define fj_lane() ((int)(PyThreadState_GetUnchecked()->id % FJ_LANES))

#else

#define FJ_LOCK(object) {
#define FJ_UNLOCK() }
#define FJ_LOAD_INT(place) (place)
#define FJ_STORE_INT(place, value) ((place) = (value))
#define FJ_LOAD_SIZE(place) (place)
#define FJ_STORE_SIZE(place, value) ((place) = (value))
#define FJ_LOAD_UINT(place) (place)
#define FJ_STORE_UINT(place, value) ((place) = (value))
#define FJ_LOAD_POINTER(place) (place)
#define FJ_STORE_POINTER(place, value) ((place) = (value))
#define FJ_ADD(place, more) ((place) += (more))
#define FJ_LOAD_COUNT(place) (place)
#define FJ_STORE_COUNT(place, value) ((place) = (value))
#define FJ_LANES 1
#define FJ_LANE_WORDS 1
#define fj_lane() 0

#endif

/* Puts `value` into a place: what was there. */
static inline void *
fj_exchange(void *place, void *value)
{
#if FJ_FREE_THREADED
    return _Py_atomic_exchange_ptr(place, value);
#else
    void *before;
    memcpy(&before, place, sizeof(before)); /* pointers of any type */
    memcpy(place, &value, sizeof(value));
    return before;
#endif
}

/* A count to which each call adds. */
typedef struct {
    unsigned long long of_lane[FJ_LANES][FJ_LANE_WORDS];
} FjCount;

/* Adds a call: how many there were in its lane. */
static inline unsigned long long
fj_count(FjCount *count)
{
    return FJ_ADD(count->of_lane[fj_lane()][0], 1);
}

static inline unsigned long long
fj_total(const FjCount *count)
{
    unsigned long long total = 0;
    for (int i = 0; i < FJ_LANES; i++) {
        total += FJ_LOAD_COUNT(count->of_lane[i][0]);
    }
    return total;
}

/* The getter of a count, which an object has at an offset, the closure. */
static inline PyObject *
fj_get_total(PyObject *object, void *offset)
{
    return PyLong_FromUnsignedLongLong(fj_total((FjCount *)((char *)object + (size_t)offset)));
}

/* Stores `made`, which is stolen, in a place of `owner`, unless other code or another thread
 * has been faster.  What is there then, borrowed; NULL if `made` is NULL, with an error. */
static inline PyObject *
fj_keep_first(PyObject *owner, PyObject **place, PyObject *made)
{
    PyObject *first = made, *dropped = NULL;
    (void)owner;
    FJ_LOCK(owner);
    if (made != NULL && *place != NULL) {
        first = *place;
        dropped = made;
    }
    else if (made != NULL) {
        FJ_STORE_POINTER(*place, made);
    }
    FJ_UNLOCK();
    Py_XDECREF(dropped);
    return first;
}
