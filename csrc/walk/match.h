/* A tree against a Structure that it is likely to have: the hot before_raising_call. */
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

/* An argument that needs not be looked at, in its slot: see partial.c and memo.c.  All that it
 * points to is borrowed. */
typedef struct {
    Py_ssize_t parameter;
    PyObject *object;
    PyObject *const *arrays; /* those in it, in order */
    Py_ssize_t count;
} FjCapture;

/* Pushes the arrays of the arguments (or of the tree) when they have exactly this Structure,
 * which must have been hashed; otherwise leaves `arrays` as it was.  The caller holds the
 * objects and the Structure.  Runs Python code only where the Structure is `careful` or a leaf
 * is of a kind that must be asked (tracers).
 *
 * `captures`, `count`: arguments that are known to have the Structure's part of it; where the
 * slot still holds that object, its arrays are pushed unseen.  Once Python code may have run
 * that did not have to from the start, they are walked like the others. */
FjMatch fj_match_arguments(FjStructure *structure, PyObject *const *arguments,
                           const FjCapture *captures, Py_ssize_t count, FjLeafBuf *arrays);
FjMatch fj_match_tree(FjStructure *structure, PyObject *tree, FjLeafBuf *arrays);

#endif
