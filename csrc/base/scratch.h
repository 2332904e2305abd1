/* A temporary array of object pointers: on the caller's stack where it is short, else
 * allocated.
 *
 *     PyObject *room[8];
 *     PyObject **items = fj_scratch_new(room, 8, count);
 *     if (items == NULL) {
 *         return NULL;
 *     }
 *     ...
 *     fj_scratch_free(items, room);
 *
 * The array is not initialized, and whether its items are owned is the caller's business.
 * Nothing in here runs Python code.
 */
#ifndef FJ_SCRATCH_H
#define FJ_SCRATCH_H

#include "base/common.h"

/* An array of `count` items: `room`, which has `size` of them, or a new one; NULL with
 * MemoryError. */
static inline PyObject **
fj_scratch_new(PyObject **room, Py_ssize_t size, Py_ssize_t count)
{
    if (FJ_LIKELY(count <= size)) {
        return room;
    }
    PyObject **items = PyMem_New(PyObject *, (size_t)count);
    if (items == NULL) {
        PyErr_NoMemory();
    }
    return items;
}

/* Frees what fj_scratch_new returned for this `room`; NULL is ignored. */
static inline void
fj_scratch_free(PyObject **items, PyObject **room)
{
    if (FJ_UNLIKELY(items != room)) {
        PyMem_Free(items);
    }
}

#endif
