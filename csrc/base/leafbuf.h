/* A growable buffer of owned references: the arrays of one call, in order.
 *
 * The first of them live in an array of the caller's, on its stack.  A call has room for many
 * there: asking malloc for more than a few hundred bytes makes glibc first tidy up what was
 * freed since, all the buffers of the last step's arrays, say.  Whatever can be entered again
 * and again, by the user's functions that it calls, makes do with few.  One slot before the
 * first is kept free: it lets a callee prepend an argument (PY_VECTORCALL_ARGUMENTS_OFFSET)
 * without copying.
 *
 * Pushing runs no Python code.  Clearing drops references, so it may.
 */
#ifndef FJ_LEAFBUF_H
#define FJ_LEAFBUF_H

#include "base/common.h"

#define FJ_LEAFBUF_MANY 1025 /* 8 KiB */
#define FJ_LEAFBUF_FEW 65

typedef struct {
    PyObject **items; /* items[-1] is the free slot */
    Py_ssize_t count;
    Py_ssize_t capacity;
    PyObject **room; /* the caller's, of `size` */
    Py_ssize_t size;
} FjLeafBuf;

/* `size` counts the free slot. */
static inline void
fj_leafbuf_init(FjLeafBuf *buf, PyObject **room, Py_ssize_t size)
{
    buf->items = room + 1;
    buf->count = 0;
    buf->capacity = size - 1;
    buf->room = room;
    buf->size = size;
}

/* Makes room for `more` than it holds, at least twice what there was.  0, or -1 with
 * MemoryError and the buffer as it was. */
int fj_leafbuf_grow(FjLeafBuf *buf, Py_ssize_t more);

/* Drops the references from `count` on. */
void fj_leafbuf_truncate(FjLeafBuf *buf, Py_ssize_t count);

/* Drops all references and frees the room; the buffer may be used again. */
void fj_leafbuf_clear(FjLeafBuf *buf);

/* Takes a new reference to `object`.  0, or -1 with MemoryError. */
static inline int
fj_leafbuf_push(FjLeafBuf *buf, PyObject *object)
{
    if (FJ_UNLIKELY(buf->count == buf->capacity) && fj_leafbuf_grow(buf, 1) < 0) {
        return -1;
    }
    buf->items[buf->count++] = Py_NewRef(object);
    return 0;
}

/* Takes over a reference, of which NULL is an error that is passed on.  0, or -1 with an error
 * and nothing kept. */
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

/* Makes room for `more` references.  0, or -1 with MemoryError and the buffer as it was. */
static inline int
fj_leafbuf_reserve(FjLeafBuf *buf, Py_ssize_t more)
{
    return buf->capacity - buf->count < more ? fj_leafbuf_grow(buf, more) : 0;
}

/* New references to all of `items`.  0, or -1 with MemoryError. */
int fj_leafbuf_extend(FjLeafBuf *buf, PyObject *const *items, Py_ssize_t count);

/* The references as a new tuple or list, NULL with an error. */
PyObject *fj_leafbuf_as_tuple(const FjLeafBuf *buf);
PyObject *fj_leafbuf_as_list(const FjLeafBuf *buf);

#endif
