/* A temporary array of object pointers: on the stack if short, otherwise on the heap.
 *
 *     PyObject *stack[8];
 *     PyObject **items = fj_scratch_new(stack, 8, count);
 *     if (items == NULL) {
 *         return NULL;
 *     }
 *     ...
 *     fj_scratch_free(items, stack);
 *
 * The array is uninitialized and borrows its items.  Runs no Python code. */
#pragma once

#include "base/common.h"

/* Returns `stack`, an array of `size` items, or a new array if `count` is larger. */
static inline PyObject **
fj_scratch_new(PyObject **stack, Py_ssize_t size, Py_ssize_t count)
{
    if (FJ_LIKELY(count <= size)) {
        return stack;
    }
    PyObject **items = PyMem_New(PyObject *, (size_t)count);
    if (items == NULL) {
        PyErr_NoMemory();
    }
    return items;
}

/* `items` can be NULL. */
static inline void
fj_scratch_free(PyObject **items, PyObject **stack)
{
    if (FJ_UNLIKELY(items != stack)) {
        PyMem_Free(items);
    }
}

/* A stack of temporary arrays, for a recursive walk:
 *
 *     PyObject *stack[FJ_SCRATCH_INLINE];
 *     FjScratch scratch = fj_scratch_of(stack);
 *     ...
 *     PyObject **items = fj_scratch_push(&scratch, count);
 *     ...
 *     fj_scratch_pop(&scratch, items);
 *
 * Arrays are popped in reverse order.  One that doesn't fit into `stack` is on the heap. */
typedef struct {
    PyObject **first, **next, **end; /* of `stack`; `next` is unused */
} FjScratch;

#define FJ_SCRATCH_INLINE 256

static inline FjScratch
fj_scratch_of(PyObject **stack)
{
    return (FjScratch){.first = stack, .next = stack, .end = stack + FJ_SCRATCH_INLINE};
}

/* NULL with MemoryError. */
static inline PyObject **
fj_scratch_push(FjScratch *scratch, Py_ssize_t count)
{
    PyObject **items = fj_scratch_new(scratch->next, scratch->end - scratch->next, count);
    scratch->next += items == scratch->next ? count : 0;
    return items;
}

/* `items` can be NULL. */
static inline void
fj_scratch_pop(FjScratch *scratch, PyObject **items)
{
    if (FJ_LIKELY((uintptr_t)items - (uintptr_t)scratch->first <=
                  (uintptr_t)scratch->end - (uintptr_t)scratch->first)) {
        scratch->next = items;
    }
    else {
        PyMem_Free(items);
    }
}
