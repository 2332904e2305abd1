/* Matching: whether a tree has an expected Structure, and which arrays it holds. */
#ifndef FJ_MATCH_H
#define FJ_MATCH_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

typedef enum {
    FJ_MATCH_ERROR = -1, /* an exception is set */
    FJ_MATCH_NO = 0,
    FJ_MATCH_YES = 1
} FjMatch;

/* An argument that need not be walked, because its structure and arrays have been found
 * before: see partial.c and memo.c.  All members are borrowed. */
typedef struct {
    Py_ssize_t parameter;      /* index of the parameter */
    PyObject *object;          /* the argument */
    PyObject *const *arrays;   /* the arrays in it, in order */
    Py_ssize_t count;          /* number of arrays */
    unsigned long long number; /* of the snapshot in memo.c; 0 for an argument of partial.c */
} FjCapture;

/* Pushes the arrays of the arguments (or of the tree) and returns FJ_MATCH_YES if they have
 * exactly this Structure, which must have been hashed; otherwise leaves `arrays` unchanged.
 * The caller holds the objects and the Structure.  Runs Python code only if the Structure has
 * fj_structure_runs_python, or if the python_free walk of match.c cannot compare an object.
 *
 * `captures` are `count` arguments that were found to have the Structure of their parameter.
 * If an argument is still the captured object, its arrays are pushed and it is not walked.  A
 * walk that has to begin again because it needs Python code ignores the captures, and sets
 * `*count` to 0.
 */
FjMatch fj_match_arguments(FjStructure *structure, PyObject *const *arguments,
                           const FjCapture *captures, Py_ssize_t *count, FjLeafBuf *arrays);
FjMatch fj_match_tree(FjStructure *structure, PyObject *tree, FjLeafBuf *arrays);

#endif
