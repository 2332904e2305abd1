/* Python.h, through the compatibility layer, and small helpers that every file needs.
 *
 * In all files:
 *
 * - (P) marks a function that can run Python code.
 * - A function that returns a pointer to an object returns a new reference, or NULL with an
 *   exception set, unless its comment says "borrowed" or "or NULL".
 * - A function that returns an int returns 0, or -1 with an exception set.  "True if": 1 or 0.
 */
#pragma once

#include "base/compat.h"
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

/* A result of functions that run no Python code: only Python code can tell. */
#define FJ_NEEDS_PYTHON (-2)

/* Raises an exception.  Always -1.  PyErr_Format is always NULL. */
static inline int
fj_raise(PyObject *type, const char *text)
{
    PyErr_SetString(type, text);
    return -1;
}

static inline int
fj_raise_no_memory(void)
{
    PyErr_NoMemory();
    return -1;
}

/* Returns 1 if `result` is a tuple, as PyArg_ParseTuple requires, or 0 with a TypeError that
 * names the Python function `function`. */
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

/* (P) PyObject_IsTrue that steals `result` and returns -1 for NULL, an earlier error. */
static inline int
fj_steal_truth(PyObject *result)
{
    int truth = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return truth;
}

/* (P) Calls a callable that might end in this very call.  Python frames check the depth.
 * Without them, C code would recurse until the stack overflows. */
static inline PyObject *
fj_call_nested(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (fj_compat_enter_frames() < 0) {
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(callable, args, nargsf, kwnames);
    fj_compat_leave_frames();
    return result;
}

/* PyList_Append that steals `item` and returns -1 for NULL, an earlier error. */
static inline int
fj_list_steal(PyObject *list, PyObject *item)
{
    int result = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return result;
}

/* A PyMethodDef with a text signature, for any type of C function. */
#define FJ_METHOD(name, function, flags, signature, text)                                     \
    {name, (PyCFunction)(void (*)(void))(function), flags, name signature "\n--\n\n" text}

/* Defines the PyType_Spec of a type that is immutable and garbage-collected. */
#define FJ_SPEC(variable, full_name, size, its_slots, more_flags)                             \
    PyType_Spec variable = {                                                                  \
        .name = full_name,                                                                    \
        .basicsize = (size),                                                                  \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |         \
                 (more_flags),                                                                \
        .slots = (its_slots),                                                                 \
    }

/* The last step of a tp_dealloc, after all references have been dropped. */
static inline void
fj_object_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Defines NAME_traverse and NAME_dealloc of a garbage-collected TYPE.  REFERENCES(WHAT)
 * applies WHAT to each reference that `self` owns, which can be NULL.  `visit_more` visits the
 * rest, and `before` and `after` run around dropping the references. */
#define FJ_GC_TYPE(name, TYPE, REFERENCES, visit_more, before, after)                         \
    static int name##_traverse(PyObject *op, visitproc visit, void *arg)                      \
    {                                                                                         \
        TYPE *self = (TYPE *)op;                                                              \
        Py_VISIT(Py_TYPE(op));                                                                \
        REFERENCES(Py_VISIT)                                                                  \
        return visit_more;                                                                    \
    }                                                                                         \
    static void name##_dealloc(PyObject *op)                                                  \
    {                                                                                         \
        TYPE *self = (TYPE *)op;                                                              \
        PyObject_GC_UnTrack(op);                                                              \
        if (Py_TYPE(op)->tp_weaklistoffset != 0) {                                            \
            PyObject_ClearWeakRefs(op);                                                       \
        }                                                                                     \
        before;                                                                               \
        REFERENCES(Py_CLEAR)                                                                  \
        after;                                                                                \
        fj_object_free(op);                                                                   \
    }

/* Hides a new container from the garbage collector until fj_show.  Without this,
 * gc.get_objects() could return it half-filled, and reading a NULL item crashes.  Hide a
 * container if other code can run while it is filled, or create its children first.  Other
 * code (of other threads, too) runs wherever Python code does and, on Python 3.11, in each
 * allocation of a garbage-collected object (callbacks and finalizers).
 *
 * Returns `object`, which can be NULL.  The shared empty tuple must not be hidden. */
static inline PyObject *
fj_hide(PyObject *object)
{
    if (object != NULL) {
        PyObject_GC_UnTrack(object);
    }
    return object;
}

/* Shows a hidden object to the garbage collector, once it is complete. */
static inline void
fj_show(PyObject *object)
{
    PyObject_GC_Track(object);
}

/* (P) tuple(iterable).  PySequence_Tuple exposes it half-filled before Python 3.14. */
static inline PyObject *
fj_tuple_of(PyObject *iterable)
{
    if (PyTuple_CheckExact(iterable) || PyList_CheckExact(iterable) ||
        PyAnySet_CheckExact(iterable)) { /* runs no other code */
        return PySequence_Tuple(iterable);
    }
    PyObject *list = PySequence_List(iterable);
    PyObject *tuple = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return tuple;
}

static inline PyObject *
fj_tuple_from(PyObject *const *items, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
    }
    return tuple;
}

typedef struct FjRegistry FjRegistry;
typedef struct FjNodeKind FjNodeKind;
typedef struct FjStructure FjStructure;
