/* What every file of the core includes: Python.h, by way of the compatibility layer, and small
 * helpers.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_COMMON_H
#define FJ_COMMON_H

#include "base/compat.h" /* Python.h */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define FJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define FJ_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FJ_NOINLINE __attribute__((noinline))
#else
#define FJ_LIKELY(x) (x)
#define FJ_UNLIKELY(x) (x)
#define FJ_NOINLINE
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

/* Types that headers name before they are defined. */
typedef struct FjRegistry FjRegistry;
typedef struct FjNodeKind FjNodeKind;
typedef struct FjStructure FjStructure;

#endif
