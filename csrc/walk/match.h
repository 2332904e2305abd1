/* Matching: checks that a tree has an expected Structure, and collects its arrays. */
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

/* If the arguments (or the tree) have exactly this Structure, which must have been hashed,
 * pushes their arrays and returns FJ_MATCH_YES.  Otherwise leaves `arrays` unchanged.  The
 * caller holds the objects and the Structure.  Runs Python code only if the Structure has
 * `may_run_python`, or if an object can't be compared without it.
 *
 * `*known`, initially NULL, remembers earlier arguments with this Structure, to avoid walking
 * them.  `objects`, initially empty, receives the numbered objects in order (Sharing in
 * structure.h); it can be NULL without numbered objects. */
FjMatch fj_match_arguments(FjStructure *structure, FjKnownArguments **known,
                           PyObject *const *arguments, FjLeafBuf *arrays, FjLeafBuf *objects);
FjMatch fj_match_tree(FjStructure *structure, PyObject *tree, FjLeafBuf *arrays);
