/* A temporary array of object pointers: on the stack if short, otherwise on the heap.
 *
 *     PyObject *room[8];
 *     PyObject **items = fj_scratch_new(room, 8, count);
 *     if (items == NULL) {
 *         return NULL;
 *     }
 *     ...
 *     fj_scratch_free(items, room);
 *
 * The array is uninitialized and borrows its items.  Runs no Python code. */
#pragma once

#include "base/common.h"

/* Returns `room`, an array of `size` items, or a new array if `count` is larger. */
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

/* `items` can be NULL. */
static inline void
fj_scratch_free(PyObject **items, PyObject **room)
{
    if (FJ_UNLIKELY(items != room)) {
        PyMem_Free(items);
    }
}
