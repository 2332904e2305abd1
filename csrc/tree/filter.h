/* Which of several filters takes each leaf of a tree.
 *
 * A filter is a *expression* that the Python side has made of what the user gave:
 *
 *   True, False
 *   ("arrays",)                arrays
 *   ("array", predicate)       arrays of which predicate(leaf) is true; not asked of others
 *   ("leaf", predicate)        leaves of which predicate(leaf) is true
 *   ("path", components)       leaves by their path: see pattern.h
 *   ("and", p, q), ("or", p, q), ("not", p)
 *   ("tree", spec, expression_of) a tree that stops at or above the leaves, of what
 * expression_of makes a expression of
 */
#ifndef FJ_FILTER_H
#define FJ_FILTER_H

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* Of a tree that fj_flatten_leaves took apart: sets `groups[i]` to the number of the first
 * expression that takes leaf `i`, or to how many expressions there are.  Where `candidates` is
 * not NULL it is a expression too, and a leaf that it does not take is of group -1.  0, or -1
 * with an error, which names the leaf that a predicate failed on.  `is_leaf` is what the tree
 * was taken apart with, or None.  Runs Python code: see filter.c. */
int fj_filter_groups(FjStructure *structure, PyObject *tree, PyObject *is_leaf,
                     PyObject *const *leaves, PyObject *candidates, PyObject *expressions,
                     int16_t *groups);

#endif
