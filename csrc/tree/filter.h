/* Filters: assigns each leaf of a tree to one of several filters.
 *
 * _trees/_filters.py translates each user filter into a filter expression:
 *
 *   True, False             all leaves, no leaves
 *   ("arrays",)             arrays
 *   ("array", predicate)    arrays for which predicate(leaf) is true; the predicate isn't
 *                           called for other leaves
 *   ("leaf", predicate)     leaves for which predicate(leaf) is true
 *   ("path", components)    leaves with a path that matches a pattern (pattern.h); raises if
 *                           no leaf matches
 *   ("path or none", components)
 *                           the same without the error
 *   ("and", p, q)           leaves that both expressions select
 *   ("or", p, q)            leaves that at least one expression selects
 *   ("not", p)              leaves that the expression doesn't select
 *   ("tree", filters, expression_of)
 *                           `filters` is a prefix of the tree, with a filter for each subtree
 *                           as its leaves: True, False, or an object that expression_of()
 *                           translates */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* Returns a new array with the group of each leaf, for PyMem_Free.  If a predicate raises,
 * adds a note with the leaf's path.  Can run Python code: see filter.c.
 *
 * The group is the index of the first of the `expressions` (a tuple or NULL) that selects the
 * leaf, or the number of expressions if none does.  It is -1 for leaves that the expression
 * `candidates` doesn't select.  `leaves` and `structure` are from fj_flatten_leaves. */
int16_t *fj_filter_groups(FjStructure *structure, PyObject *tree, PyObject *is_leaf,
                          PyObject *const *leaves, PyObject *candidates,
                          PyObject *expressions);
