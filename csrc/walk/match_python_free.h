/* The python_free walk of a match: see match.c. */
#ifndef FJ_MATCH_PYTHON_FREE_H
#define FJ_MATCH_PYTHON_FREE_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"
#include "walk/known.h"
#include "walk/match.h"

/* What the python_free walk returns where it would need Python code. */
#define FJ_MATCH_NEEDS_PYTHON (-2)

/* The state of a walk. */
typedef struct {
    FjStructure *structure;
    FjRegistry *registry;
    FjLeafBuf *arrays;
    FjLeafBuf *objects;         /* the numbered ones; or NULL if there are none */
    FjKnownArgument *recording; /* the record that is being made on a python_free walk, or NULL
                                 */
    Py_ssize_t first_array;     /* the number of arrays before those of this argument */
    const FjNode *next;
} FjMatcher;

/* Matches the arguments (or one tree) with the nodes from `next` on: a value of FjMatch or
 * FJ_MATCH_NEEDS_PYTHON.  The buffers may then hold objects whatever the result is.  `known`
 * may be NULL. */
int fj_match_python_free(FjMatcher *m, PyObject *const *objects, Py_ssize_t count,
                         FjKnownArguments *known);

#endif
