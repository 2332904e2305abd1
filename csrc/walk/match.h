/* Matching: checks that a tree has an expected Structure, and collects its arrays. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"
#include "walk/known.h"

/* The attempts of one call to match several Structures, which help the later ones. */
typedef struct {
    Py_ssize_t failed; /* the argument that differed from the first Structure */
    /* A mutable static is only compared with a Structure that holds this very object, and
     * differs from others: comparing an equal GraphDef takes twenty times as long. */
    int same_object_only;
    int skipped_mutable; /* ... and one was not compared */
} FjMatchAttempts;

/* If the arguments (or the tree) have exactly this Structure, which must have been hashed,
 * pushes their arrays and returns 1.  Otherwise leaves `arrays` unchanged: 0, or -1 with an
 * error.  The caller holds the objects and the Structure.  Runs Python code only if the
 * Structure has `may_run_python`, or if an object can't be compared without it.
 *
 * `*known`, initially NULL, remembers earlier arguments with this Structure, to avoid walking
 * them.  `objects`, initially empty, receives the numbered objects in order (Sharing in
 * structure.h).  If it is NULL, a Structure with numbered objects matches nothing. */
int fj_match_arguments(FjStructure *structure, FjKnownArguments **known,
                       PyObject *const *arguments, FjLeafBuf *arrays, FjLeafBuf *objects,
                       FjMatchAttempts *attempts);

/* The same without Python code, for a Structure that is one of several candidates: compares
 * the argument `attempts->failed` before the others.  True if the arguments match.  0 also if
 * that can't be told without Python code, and without a GIL. */
int fj_match_try(FjStructure *structure, FjKnownArguments *known, PyObject *const *arguments,
                 FjMatchAttempts *attempts, FjLeafBuf *arrays, FjLeafBuf *objects);

int fj_match_tree(FjStructure *structure, PyObject *tree, FjLeafBuf *arrays);
