/* A growable buffer of owned references, for the arrays of one call.
 *
 * The caller provides an array on its stack for the first references.  When that is full, the
 * buffer allocates a larger one.  A call's array has FJ_LEAFBUF_MANY items: an allocation of
 * more than a few hundred bytes makes glibc consolidate all chunks freed before it, such as
 * the array buffers of the last training step.  Functions that can recurse through a user's
 * function use FJ_LEAFBUF_FEW items, to save stack.
 *
 * items[-1] is free.  A callee can prepend an argument there without copying the others
 * (PY_VECTORCALL_ARGUMENTS_OFFSET).
 *
 * Only the functions marked (P) drop references, which can run finalizers. */
#pragma once

#include "base/common.h"

#define FJ_LEAFBUF_MANY 1025 /* 8 KiB */
#define FJ_LEAFBUF_FEW 65

typedef struct {
    PyObject **items;
    Py_ssize_t count;
    Py_ssize_t capacity;
    PyObject **stack; /* the caller's array */
    Py_ssize_t size;  /* of `stack` */
} FjLeafBuf;

/* `stack` has `size` items; one of them becomes items[-1]. */
static inline void
fj_leafbuf_init(FjLeafBuf *buf, PyObject **stack, Py_ssize_t size)
{
    buf->items = stack + 1;
    buf->count = 0;
    buf->capacity = size - 1;
    buf->stack = stack;
    buf->size = size;
}

/* Declares an empty buffer with an array on the stack. */
#define FJ_LEAFBUF(name, size)                                                                \
    PyObject *name##_inline[size];                                                            \
    FjLeafBuf name;                                                                           \
    fj_leafbuf_init(&name, name##_inline, size)

/* Reallocates for `more` additional references, at least doubling the capacity.  0, or -1 with
 * MemoryError and the buffer unchanged. */
int fj_leafbuf_grow(FjLeafBuf *buf, Py_ssize_t more);

/* (P) Drops all references but the first `count`. */
void fj_leafbuf_truncate(FjLeafBuf *buf, Py_ssize_t count);

/* (P) Drops all references and frees the allocated array.  The buffer stays usable. */
void fj_leafbuf_clear(FjLeafBuf *buf);

/* Adds a new reference.  0, or -1 with MemoryError. */
static inline int
fj_leafbuf_push(FjLeafBuf *buf, PyObject *object)
{
    if (FJ_UNLIKELY(buf->count == buf->capacity) && fj_leafbuf_grow(buf, 1) < 0) {
        return -1;
    }
    buf->items[buf->count++] = Py_NewRef(object);
    return 0;
}

/* (P) Adds `object` and steals it even on failure.  NULL passes on an earlier error. */
static inline int
fj_leafbuf_steal(FjLeafBuf *buf, PyObject *object)
{
    if (object == NULL) {
        return -1;
    }
    int result = fj_leafbuf_push(buf, object);
    Py_DECREF(object);
    return result;
}

static inline int
fj_leafbuf_reserve(FjLeafBuf *buf, Py_ssize_t more)
{
    return buf->capacity - buf->count < more ? fj_leafbuf_grow(buf, more) : 0;
}

int fj_leafbuf_extend(FjLeafBuf *buf, PyObject *const *items, Py_ssize_t count);

static inline PyObject *
fj_leafbuf_as_tuple(const FjLeafBuf *buf)
{
    return fj_tuple_from(buf->items, buf->count);
}

/* Moves all references into a new list.  On failure, the buffer is unchanged. */
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
