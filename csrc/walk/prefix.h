/* A Structure that a tree is flattened up to: it has to be a prefix of the tree.
 *
 * flatten.c walks the tree as always, and compares each node that it opens with the next node
 * of the prefix.  The comparison is that of jax.tree_util: types must be identical; static
 * fields, aux data and keys must be equal by ==; the keys of a dict may be in any order, those
 * of an OrderedDict may not.
 *
 * Functions marked (P) may run Python code.  Those that return -1 raise a ValueError that says
 * where the tree differs, or pass on an error.
 */
#ifndef FJ_PREFIX_H
#define FJ_PREFIX_H

#include "base/common.h"
#include "structure/structure.h"

typedef struct {
    const FjStructure *structure;
    const FjNode *next;
    const char *name;  /* of the tree, in errors */
    const char *model; /* of the Structure, in errors */
} FjPrefix;

/* (P) Compares the type of an object with the next node.  1, after which the node has been
 * passed, if the object is in the place of a leaf; 0 if it is to be walked; or -1. */
int fj_prefix_meet(FjPrefix *prefix, PyObject *object);

/* Whether the children of the node that was passed last are all leaves. */
static inline int
fj_prefix_has_leaves(const FjPrefix *prefix)
{
    return (prefix->next[-1].flags & FJ_NODE_LEAVES) != 0;
}

/* (P) Compares a node of the tree with the next one, and passes that.  `code` to `aux` are as
 * fj_structure_append takes them.  0 or -1. */
int fj_prefix_open(FjPrefix *prefix, FjKindCode code, Py_ssize_t arity, PyTypeObject *type,
                   PyObject *aux);

/* (P) The same for a CUSTOM node, with its aux data. */
int fj_prefix_open_custom(FjPrefix *prefix, Py_ssize_t arity, PyObject *aux_data);

/* (P) The same for the value of a static field. */
int fj_prefix_pass_static(FjPrefix *prefix, PyObject *value);

/* (P) The same for a field that is not set, or an object without children. */
int fj_prefix_pass_nothing(FjPrefix *prefix, FjKindCode code);

/* (P) The keys of a dict in the order of the next node, which stands for a dict of the same
 * type: a new tuple, or NULL with an error. */
PyObject *fj_prefix_keys(FjPrefix *prefix, PyObject *dict);

#endif
