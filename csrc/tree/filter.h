/* Filters: which of several filters takes each leaf of a tree.
 *
 * _trees/_filters.py translates each filter that the user gives into a filter expression,
 * which is one of
 *
 *   True, False             all leaves, no leaf
 *   ("arrays",)             the arrays
 *   ("traced",)             the arrays, and the leaves of the types that the registry has as
 *                           `traced_in`
 *   ("array", predicate)    the arrays for which predicate(leaf) is true; the predicate is not
 *                           called for other leaves
 *   ("leaf", predicate)     the leaves for which predicate(leaf) is true
 *   ("path", components)    the leaves whose path matches a pattern: see pattern.h. It is an
 *                           error if there are none
 *   ("path or none", components)
 *                           the same without the error
 *   ("and", p, q)           the leaves that both expressions take
 *   ("or", p, q)            the leaves that at least one of two expressions takes
 *   ("not", p)              the leaves that an expression does not take
 *   ("tree", filters, expression_of)
 *                           `filters` is a prefix of the tree, and each of its leaves is a
 *                           filter for the subtree in its place: True, False, or an object of
 *                           which expression_of(filter) returns the expression
 */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* The group of each leaf of a tree that fj_flatten_leaves has flattened, as a new array to be
 * freed by PyMem_Free; NULL with an error.  If a predicate raised the error, a note with the
 * path of the leaf is added to it.  May run Python code: see filter.c.
 *
 * The group of a leaf is the index of the first item of `expressions`, a tuple or NULL, that
 * takes the leaf, or the number of expressions if none does.  `candidates` is an expression
 * too, and each leaf that it does not take is in group -1.  `is_leaf` is the one that the tree
 * was flattened with, or None. */
int16_t *fj_filter_groups(FjStructure *structure, PyObject *tree, PyObject *is_leaf,
                          PyObject *const *leaves, PyObject *candidates,
                          PyObject *expressions);
