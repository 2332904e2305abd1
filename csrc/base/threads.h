/* Locks, atomic loads and stores, and per-lane counters for builds without a GIL.  With the
 * GIL, a lock is a plain block and a load a plain expression.
 *
 * A lock is CPython's critical section of an object.  Like the GIL, it is released while the
 * thread blocks or runs Python code.  So the rule is the same as with a GIL: after running
 * Python code, recheck everything read before.  What the lock of each type protects:
 *
 *   Registry     its kinds
 *   Structure    its hash, snapshots, dict models and paths
 *   Cache        its variants, and the prediction of the next one
 *   Variant      its traces and deferred work
 *   FilterJit    its cache and arrays, which are set once, before the first call
 *   Direct       its entries and what they have learned; one Direct per lane
 *   VariableJit  its states and its reason
 *   NodeKind     facts learned about its class
 *
 * If all threads wrote to the same counter on each call, its cache line would move from core
 * to core.  So some counters and caches keep a slot per *lane*.  Threads are assigned to lanes
 * by their id, and threads of a lane share its slot.
 *
 * Everything else either never changes once other threads can see it, or belongs to the user.
 * A walk holds each user object that it has read, and reads containers with functions that
 * lock them.
 *
 * No lock is held while an executable runs or while JAX traces, lowers or compiles. */
#pragma once

#include "base/compat.h"

#if FJ_FREE_THREADED

/* A critical section, which no `return` or `goto` may leave. */
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

/* Adds to an `unsigned long long` and returns its new value. */
#define FJ_ADD(place, more) (_Py_atomic_add_uint64((uint64_t *)&(place), (more)) + (more))
#define FJ_LOAD_COUNT(place) _Py_atomic_load_uint64_relaxed((const uint64_t *)&(place))
#define FJ_STORE_COUNT(place, value)                                                          \
    _Py_atomic_store_uint64_relaxed((uint64_t *)&(place), value)

#define FJ_LANES 8
#define FJ_LANE_WORDS 8 /* pads a slot to a cache line */
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

/* Runs one statement in a critical section. */
#define FJ_LOCKED(object, ...)                                                                \
    do {                                                                                      \
        FJ_LOCK(object);                                                                      \
        __VA_ARGS__;                                                                          \
        FJ_UNLOCK();                                                                          \
    } while (0)

/* Stores `value` and returns the previous value. */
static inline void *
fj_exchange(void *place, void *value)
{
#if FJ_FREE_THREADED
    return _Py_atomic_exchange_ptr(place, value);
#else
    void *before;
    memcpy(&before, place, sizeof(before)); /* `place` points to a pointer of any type */
    memcpy(place, &value, sizeof(value));
    return before;
#endif
}

typedef struct {
    unsigned long long of_lane[FJ_LANES][FJ_LANE_WORDS];
} FjCount;

/* Counts one call.  Returns the number of calls in this lane, including this one. */
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

/* A getset getter for an FjCount.  The closure is its offset in the object. */
static inline PyObject *
fj_get_total(PyObject *object, void *offset)
{
    return PyLong_FromUnsignedLongLong(fj_total((FjCount *)((char *)object + (size_t)offset)));
}

/* Stores `made` (stolen) in a place of `owner`, unless other code or a second thread got there
 * first.  Returns the stored object (borrowed).  `made` can be NULL, an earlier error. */
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
