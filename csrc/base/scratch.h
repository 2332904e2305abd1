/* A temporary array of object pointers, which is on the caller's stack if it is short and
 * allocated otherwise.
 *
 *     PyObject *room[8];
 *     PyObject **items = fj_scratch_new(room, 8, count);
 *     if (items == NULL) {
 *         return NULL;
 *     }
 *     ...
 *     fj_scratch_free(items, room);
 *
 * The array is not initialized, and the functions below neither take nor drop references to
 * its items.  Nothing in this file runs Python code.
 */
#pragma once

#include "base/common.h"

/* An array with room for `count` items: `room`, an array of `size` items, if that is enough,
 * else a new one; NULL with MemoryError. */
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

/* Frees the array that fj_scratch_new returned for this `room`, or does nothing for NULL. */
static inline void
fj_scratch_free(PyObject **items, PyObject **room)
{
    if (FJ_UNLIKELY(items != room)) {
        PyMem_Free(items);
    }
}
