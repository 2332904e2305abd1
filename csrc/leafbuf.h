/* A growable buffer of owned references: the arrays of one call, in order.
 *
 * The first FJ_LEAFBUF_INLINE references live in the struct itself, on the caller's stack, and
 * these are many: asking malloc for more than a few hundred bytes makes glibc first tidy up
 * what was freed since, all the buffers of the last step's arrays, say.  One slot before the
 * first is kept free: it lets a callee prepend an argument (PY_VECTORCALL_ARGUMENTS_OFFSET)
 * without copying.
 *
 * Pushing runs no Python code.  Clearing drops references, so it may.
 */
#ifndef FJ_LEAFBUF_H
#define FJ_LEAFBUF_H

#include "common.h"

#define FJ_LEAFBUF_INLINE 1024 /* 8 KiB */

typedef struct {
    PyObject **items; /* items[-1] is the free slot */
    Py_ssize_t count;
    Py_ssize_t capacity;
    PyObject *first[FJ_LEAFBUF_INLINE + 1];
} FjLeafBuf;

static inline void
fj_leafbuf_init(FjLeafBuf *buf)
{
    buf->items = buf->first + 1;
    buf->count = 0;
    buf->capacity = FJ_LEAFBUF_INLINE;
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
