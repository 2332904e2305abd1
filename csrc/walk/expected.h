/* The Structure that flatten.c compares a tree with during a walk.
 *
 * Each function compares a part of the tree with the next node and moves past it.  There are
 * two kinds of comparison:
 *
 * - exactly, in a match that holds references (compare.c);
 * - like jax.tree_util, if the Structure must be a *prefix* of the tree.  Types must be
 *   identical; static fields, aux data and keys must be ==. A dict's keys can be in any order,
 *   an OrderedDict's can't.  A difference raises a ValueError with its path.
 *
 * A result of -1 or NULL means an exception or, in an exact comparison, `differs`. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

typedef struct {
    const FjStructure *structure;
    const FjNode *next;
    FjLeafBuf *arrays;
    int differs;
    const char *name;  /* of the tree in errors; NULL for an exact comparison */
    const char *model; /* of the Structure in errors */
} FjExpected;

/* (P) Compares any object.  1 if it is the expected leaf; it has been pushed if it is an array
 * or at a leaf of a prefix.  0 if it must be walked: its type is as expected.  Or -1. */
int fj_expected_meet(FjExpected *expected, PyObject *object);

/* True if the children of the node passed last are all leaves. */
static inline int
fj_expected_has_leaves(const FjExpected *expected)
{
    return (expected->next[-1].flags & FJ_NODE_LEAVES) != 0;
}

/* Returns the kind of the MODULE expected next in an exact comparison (borrowed), or NULL. */
static inline FjNodeKind *
fj_expected_kind(const FjExpected *expected)
{
    return expected->name == NULL && expected->next->code == FJ_MODULE
               ? fj_node_kind(expected->next)
               : NULL;
}

/* (P) Compares the value of a static field.  0 or -1. */
int fj_expected_field(FjExpected *expected, PyObject *value);

/* (P) Compares an absent field or argument (FJ_MISSING), or None.  0 or -1. */
int fj_expected_pass(FjExpected *expected, FjKindCode code);

/* Compares an object of a `by_identity` type.  `objects` are the numbered ones.  1 if it is
 * the expected further occurrence, 0 if it must be walked and gets the next number, or -1. */
int fj_expected_identity(FjExpected *expected, PyObject *object, const FjLeafBuf *objects);

/* True if `tuple` is the expected constant tuple, in which case its subtree is passed. */
int fj_expected_skip(FjExpected *expected, PyObject *tuple);

/* (P) Compares a container, like fj_flatten_open.  Returns the index of the node, or -1. */
Py_ssize_t fj_expected_open(FjExpected *expected, FjKindCode code, Py_ssize_t arity,
                            PyTypeObject *type, PyObject *aux, int flags);

/* (P) Compares a CUSTOM container and its aux data.  0 or -1. */
int fj_expected_open_custom(FjExpected *expected, Py_ssize_t arity, PyTypeObject *type,
                            PyObject *aux_data);

/* (P) Returns the keys of a dict as a tuple, sorted as in JAX, except an OrderedDict's. */
PyObject *fj_sorted_keys(FjKindCode code, PyObject *dict);

/* (P) Returns the keys of a dict for fj_expected_open as a new tuple, or NULL. */
PyObject *fj_expected_keys(FjExpected *expected, FjKindCode code, PyObject *dict);
