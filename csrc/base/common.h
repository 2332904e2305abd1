/* What every file of the core needs: Python.h, the compatibility layer, small macros. */
#ifndef FJ_COMMON_H
#define FJ_COMMON_H

#include "base/compat.h" /* Python.h */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define FJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define FJ_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define FJ_LIKELY(x) (x)
#define FJ_UNLIKELY(x) (x)
#endif

/* Whether what Python code has returned can be given to PyArg_ParseTuple: 1, or 0 with a
 * TypeError. */
static inline int
fj_expect_tuple(PyObject *answer, const char *function)
{
    if (!PyTuple_Check(answer)) {
        PyErr_Format(PyExc_TypeError, "%s() must return a tuple, not `%.200s`", function,
                     Py_TYPE(answer)->tp_name);
        return 0;
    }
    return 1;
}

/* The objects of this extension that other files look into. */
typedef struct FjRegistry FjRegistry;
typedef struct FjNodeKind FjNodeKind;
typedef struct FjStructure FjStructure;

#endif
