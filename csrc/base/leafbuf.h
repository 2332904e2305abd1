/* A growable buffer of owned references, which holds the arrays of one call in order.
 *
 * The caller provides an array on its stack for the first references, and the buffer allocates
 * one when that is full.  The array of a call has FJ_LEAFBUF_MANY items, because an allocation
 * of more than a few hundred bytes makes glibc first consolidate all chunks that were freed
 * before, for example the buffers of the arrays of the last training step.  Functions that can
 * recurse by way of a user's function use FJ_LEAFBUF_FEW items, to save stack.
 *
 * The item before the first one is kept free.  It lets a callee prepend an argument without
 * copying the others (PY_VECTORCALL_ARGUMENTS_OFFSET).
 *
 * Adding references runs no Python code.  Functions marked (P) drop references, so they may
 * run finalizers.
 */
#pragma once

#include "base/common.h"

#define FJ_LEAFBUF_MANY 1025 /* 8 KiB */
#define FJ_LEAFBUF_FEW 65

typedef struct {
    PyObject **items; /* items[-1] is free */
    Py_ssize_t count;
    Py_ssize_t capacity;
    PyObject **room; /* the caller's array */
    Py_ssize_t size; /* of `room` */
} FjLeafBuf;

/* An empty buffer that uses `room`, an array of `size` items, of which one is kept free. */
static inline void
fj_leafbuf_init(FjLeafBuf *buf, PyObject **room, Py_ssize_t size)
{
    buf->items = room + 1;
    buf->count = 0;
    buf->capacity = size - 1;
    buf->room = room;
    buf->size = size;
}

/* Allocates an array with room for `more` references besides those in the buffer, and at least
 * twice the capacity.  0, or -1 with MemoryError and the buffer unchanged. */
int fj_leafbuf_grow(FjLeafBuf *buf, Py_ssize_t more);

/* (P) Drops all references but the first `count`. */
void fj_leafbuf_truncate(FjLeafBuf *buf, Py_ssize_t count);

/* (P) Drops all references and frees the allocated array.  The buffer can be used again. */
void fj_leafbuf_clear(FjLeafBuf *buf);

/* Adds a new reference to `object`.  0, or -1 with MemoryError. */
static inline int
fj_leafbuf_push(FjLeafBuf *buf, PyObject *object)
{
    if (FJ_UNLIKELY(buf->count == buf->capacity) && fj_leafbuf_grow(buf, 1) < 0) {
        return -1;
    }
    buf->items[buf->count++] = Py_NewRef(object);
    return 0;
}

/* The same after fj_leafbuf_reserve, so that it cannot fail. */
static inline void
fj_leafbuf_push_reserved(FjLeafBuf *buf, PyObject *object)
{
    buf->items[buf->count++] = Py_NewRef(object);
}

/* (P) Adds `object`, which is stolen; NULL is an error that is passed on.  0, or -1 with an
 * error and the reference dropped. */
static inline int
fj_leafbuf_take(FjLeafBuf *buf, PyObject *object)
{
    if (object == NULL) {
        return -1;
    }
    int result = fj_leafbuf_push(buf, object);
    Py_DECREF(object);
    return result;
}

/* Makes room for `more` references.  0, or -1 with MemoryError and the buffer unchanged. */
static inline int
fj_leafbuf_reserve(FjLeafBuf *buf, Py_ssize_t more)
{
    return buf->capacity - buf->count < more ? fj_leafbuf_grow(buf, more) : 0;
}

/* Adds new references to all `items`.  0, or -1 with MemoryError. */
int fj_leafbuf_extend(FjLeafBuf *buf, PyObject *const *items, Py_ssize_t count);

/* A new tuple of the objects in the buffer; NULL with an error. */
static inline PyObject *
fj_leafbuf_as_tuple(const FjLeafBuf *buf)
{
    return fj_tuple_from(buf->items, buf->count);
}

/* Moves all references into a new list; NULL with MemoryError and the buffer unchanged. */
static inline PyObject *
fj_leafbuf_move(FjLeafBuf *buf)
{
    PyObject *list = PyList_New(buf->count);
    for (Py_ssize_t i = 0; list != NULL && i < buf->count; i++) {
        PyList_SET_ITEM(list, i, buf->items[i]);
    }
    if (list != NULL) {
        buf->count = 0;
    }
    return list;
}
