/* The Structure that a tree is compared with while flatten.c walks the tree.
 *
 * Each function compares what the walk has met with the next node, and passes that.  There are
 * two comparisons:
 *
 * - exactly, in the walk of a match that holds references (compare.c);
 * - as jax.tree_util does, where the Structure has to be a *prefix* of the tree: types must be
 *   identical; static fields, aux data and keys must be equal by ==; the keys of a dict may be
 *   in any order, those of an OrderedDict may not.  A difference is a ValueError that says
 *   where it is.
 *
 * Functions marked (P) may run Python code.  After a return value of -1 or NULL, an exception
 * is set, or, in an exact comparison, `differs`.
 */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

typedef struct {
    const FjStructure *structure;
    const FjNode *next;
    FjLeafBuf *arrays;
    int differs;
    const char *name;  /* of the tree, in errors, if the Structure is a prefix; or NULL */
    const char *model; /* of the Structure, in errors */
} FjExpected;

/* (P) An object: 1 if it is the leaf that is expected, and has been pushed if it is an array
 * or in the place of a prefix's leaf; 0 if it is to be walked, since it is of the type of the
 * container that is expected; or -1. */
int fj_expected_meet(FjExpected *expected, PyObject *object);

/* Whether the children of the node that was passed last are all leaves. */
static inline int
fj_expected_has_leaves(const FjExpected *expected)
{
    return (expected->next[-1].flags & FJ_NODE_LEAVES) != 0;
}

/* The kind of the MODULE that is expected exactly, borrowed; NULL if it is another node. */
static inline FjNodeKind *
fj_expected_kind(const FjExpected *expected)
{
    return expected->name == NULL && expected->next->code == FJ_MODULE
               ? fj_node_kind(expected->next)
               : NULL;
}

/* (P) The value of a static field.  0 or -1. */
int fj_expected_field(FjExpected *expected, PyObject *value);

/* (P) A field or argument that is absent (FJ_MISSING), or None.  0 or -1. */
int fj_expected_pass(FjExpected *expected, FjKindCode code);

/* An object of a `by_identity` type, where `objects` are those that have a number: 1 if it is
 * the one that is expected to occur again; 0 if it is to be walked, and has the next number;
 * or -1. */
int fj_expected_identity(FjExpected *expected, PyObject *object, const FjLeafBuf *objects);

/* Whether a tuple is the constant one that is expected, whose subtree is then passed. */
int fj_expected_skip(FjExpected *expected, PyObject *tuple);

/* (P) A container, as fj_flatten_open takes it: the index of the node, or -1. */
Py_ssize_t fj_expected_open(FjExpected *expected, FjKindCode code, Py_ssize_t arity,
                            PyTypeObject *type, PyObject *aux, int flags);

/* (P) A CUSTOM container, with its aux data.  0 or -1. */
int fj_expected_open_custom(FjExpected *expected, Py_ssize_t arity, PyTypeObject *type,
                            PyObject *aux_data);

/* (P) The keys of a dict: sorted, as in JAX, or in their own order for an OrderedDict.  A new
 * tuple, or NULL with an error. */
PyObject *fj_sorted_keys(FjKindCode code, PyObject *dict);

/* (P) The keys of a dict, of which fj_expected_open is called next: a new tuple, or NULL. */
PyObject *fj_expected_keys(FjExpected *expected, FjKindCode code, PyObject *dict);
