/* Calls that go straight to an executable, past jax.jit: the Python type Direct.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_DIRECT_H
#define FJ_DIRECT_H

#include "base/common.h"
#include "call/direct_context.h"
#include "call/direct_entry.h"

#define FJ_DIRECT_MAX_ENTRIES 4

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjDirectContext *context;
    PyObject *jitted;
    PyObject *source;  /* what a plan is made from */
    PyObject *refusal; /* why there was no plan the last time, a str, or NULL */
    FjDirectEntry *entries[FJ_DIRECT_MAX_ENTRIES]; /* the one that was used last comes first */
    int num_entries;
    int num_noted;        /* calls that were noted */
    Py_ssize_t unmatched; /* calls that no entry was for, since one was noted */
    Py_ssize_t note_at;   /* one is noted when there are so many; -1 for `context->after` */
    unsigned strikes;     /* checks in a row that took long and were in vain */
    unsigned resting;     /* so many calls are passed on without a check */
    unsigned long long epoch;
    unsigned long long counts[FJ_NUM_WAYS];
    int lane;                  /* of its own calls */
    PyObject *lanes[FJ_LANES]; /* the Directs of the others, or NULL */
    PyObject *weakrefs;
} FjDirect;

/* A new Direct of the lane of this thread, or NULL with an error. */
PyObject *fj_direct_new(PyTypeObject *type, PyObject *context, PyObject *jitted,
                        PyObject *source);

/* (P) Forgets all calls. */
void fj_direct_drop_entries(FjDirect *self);

/* The Direct of a lane, borrowed; NULL if there is none. */
static inline FjDirect *
fj_direct_of_lane(FjDirect *self, int lane)
{
    return lane == self->lane ? self : (FjDirect *)FJ_LOAD_POINTER(self->lanes[lane]);
}

#endif
