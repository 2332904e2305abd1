/* Matching: whether a tree has an expected Structure, and which arrays it holds. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"
#include "walk/known.h"

typedef enum {
    FJ_MATCH_ERROR = -1, /* an exception is set */
    FJ_MATCH_NO = 0,
    FJ_MATCH_YES = 1
} FjMatch;

/* Pushes the arrays of the arguments (or of the tree) and returns FJ_MATCH_YES if they have
 * exactly this Structure, which must have been hashed; otherwise leaves `arrays` unchanged.
 * The caller holds the objects and the Structure.  Runs Python code only if the Structure has
 * the Structure's `may_run_python`, or if the python_free walk cannot compare an object.
 *
 * `*known` is what is known of earlier arguments with this Structure, NULL at first; an
 * argument that is known is not walked.  `objects`, which is empty, receives the numbered
 * objects in their order (Sharing in structure.h); it may be NULL if there are none. */
FjMatch fj_match_arguments(FjStructure *structure, FjKnownArguments **known,
                           PyObject *const *arguments, FjLeafBuf *arrays, FjLeafBuf *objects);
FjMatch fj_match_tree(FjStructure *structure, PyObject *tree, FjLeafBuf *arrays);

/* ---- the python_free walk: see match_python_free.c ---- */

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
