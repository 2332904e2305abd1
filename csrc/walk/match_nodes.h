/* The state of a match, and the walk of one tree: see match.c. */
#pragma once

#include "base/scratch.h"
#include "walk/kinds.h"
#include "walk/match.h"

typedef struct {
    FjStructure *structure;
    FjRegistry *registry;
    FjLeafBuf *arrays;
    FjLeafBuf *objects; /* the numbered ones, or NULL without any */
    FjScratch scratch;  /* for children that are read */
    const FjNode *next;
    int holds;                 /* the mode */
    int is_try;                /* records nothing */
    FjMatchAttempts *attempts; /* or NULL */
} FjMatcher;

/* (P) in held mode.  Matches a tree with the nodes from `next` on.  1, 0, -1 or, in borrowed
 * mode, FJ_NEEDS_PYTHON, with buffers that can be partly filled. */
int fj_match_node(FjMatcher *m, PyObject *object);
