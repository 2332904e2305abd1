/* What every file of the core includes: Python.h, by way of the compatibility layer, and small
 * helpers.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/compat.h" /* Python.h */
#include "base/threads.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define FJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define FJ_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FJ_NOINLINE __attribute__((noinline))
#define FJ_PREFETCH(address) __builtin_prefetch(address)
#else
#define FJ_LIKELY(x) (x)
#define FJ_UNLIKELY(x) (x)
#define FJ_NOINLINE
#define FJ_PREFETCH(address) ((void)0)
#endif

/* Checks that `result`, which the Python function `function` returned, is a tuple, as
 * PyArg_ParseTuple requires.  1, or 0 with a TypeError. */
static inline int
fj_expect_tuple(PyObject *result, const char *function)
{
    if (!PyTuple_Check(result)) {
        PyErr_Format(PyExc_TypeError, "%s() must return a tuple, not `%.200s`", function,
                     Py_TYPE(result)->tp_name);
        return 0;
    }
    return 1;
}

/* (P) The truth value of `result`, which is stolen; NULL is an error that is passed on.  1, 0,
 * or -1 with an error. */
static inline int
fj_take_truth(PyObject *result)
{
    int truth = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return truth;
}

/* Appends `item`, which is stolen, to a list; NULL is an error that is passed on.  0, or -1
 * with an error. */
static inline int
fj_list_take(PyObject *list, PyObject *item)
{
    int result = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return result;
}

/* For a tp_traverse: visits objects, some of which may be NULL. */
#define FJ_VISIT_ALL(...)                                                                     \
    do {                                                                                      \
        void *const all_[] = {__VA_ARGS__};                                                   \
        for (size_t i_ = 0; i_ < Py_ARRAY_LENGTH(all_); i_++) {                               \
            Py_VISIT((PyObject *)all_[i_]);                                                   \
        }                                                                                     \
    } while (0)

/* (P) For a tp_dealloc: drops references, some of which may be NULL. */
#define FJ_DROP_ALL(...)                                                                      \
    do {                                                                                      \
        void *const all_[] = {__VA_ARGS__};                                                   \
        for (size_t i_ = 0; i_ < Py_ARRAY_LENGTH(all_); i_++) {                               \
            Py_XDECREF((PyObject *)all_[i_]);                                                 \
        }                                                                                     \
    } while (0)

/* The end of a tp_dealloc: frees an object that owns no reference any more. */
static inline void
fj_object_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Hides a new object from the garbage collector until fj_show, so that no other code finds it
 * (gc.get_objects) before it is complete: to look at a tuple or list whose items are NULL
 * would crash.  A container that is filled while other code can run is therefore hidden, or
 * its children are made before it.  On Python 3.11 such code can run in each allocation of an
 * object that has a garbage collector's header (callbacks and finalizers), and on all versions
 * where Python code runs, which may also let another thread run.
 *
 * Returns `object`, or NULL if that is NULL.  The empty tuple is shared: it must not be
 * hidden. */
static inline PyObject *
fj_hide(PyObject *object)
{
    if (object != NULL) {
        PyObject_GC_UnTrack(object);
    }
    return object;
}

/* Makes a complete object that was hidden visible to the garbage collector. */
static inline void
fj_show(PyObject *object)
{
    PyObject_GC_Track(object);
}

/* (P) The items of an iterable as a new tuple, or NULL with an error.  Unlike
 * PySequence_Tuple, before Python 3.14, it lets nobody see the tuple while the iterator runs.
 */
static inline PyObject *
fj_tuple_of(PyObject *iterable)
{
    if (PyTuple_CheckExact(iterable) || PyList_CheckExact(iterable) ||
        PyAnySet_CheckExact(iterable)) { /* nothing else runs */
        return PySequence_Tuple(iterable);
    }
    PyObject *list = PySequence_List(iterable);
    PyObject *tuple = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return tuple;
}

/* A new tuple of `count` objects, or NULL with an error. */
static inline PyObject *
fj_tuple_from(PyObject *const *items, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
    }
    return tuple;
}

/* Types that headers name before they are defined. */
typedef struct FjRegistry FjRegistry;
typedef struct FjNodeKind FjNodeKind;
typedef struct FjStructure FjStructure;
