/* The children of a node of a Structure, one after the other, with the key of each, and the
 * paths of keys from the root.
 *
 *     for (FjChildren c = fj_children_of(structure, index); fj_children_has(&c);
 *          fj_children_next(&c)) {
 *         ... structure->nodes[c.at], fj_children_key(&c) ...
 *     }
 *
 * Nothing in this file runs Python code.
 */
#ifndef FJ_CHILDREN_H
#define FJ_CHILDREN_H

#include "base/common.h"
#include "structure/structure.h"

typedef struct {
    const FjStructure *structure;
    uint32_t parent; /* the index of the node */
    uint32_t number; /* of the child, from 0 */
    uint32_t at;     /* the index of the child's node, if it has one (fj_children_is_leaf) */
} FjChildren;

/* The first child of the node at `parent`. */
static inline FjChildren
fj_children_of(const FjStructure *structure, uint32_t parent)
{
    return (FjChildren){.structure = structure, .parent = parent, .at = parent + 1};
}

/* Whether there is a child: 0 after the last one. */
static inline int
fj_children_has(const FjChildren *c)
{
    return c->number < c->structure->nodes[c->parent].arity;
}

/* Whether the child is a leaf without a node of its own: its parent has FJ_NODE_LEAVES. */
static inline int
fj_children_is_leaf(const FjChildren *c)
{
    return (c->structure->nodes[c->parent].flags & FJ_NODE_LEAVES) != 0;
}

/* Advances to the next child.  The node of this one must be closed. */
static inline void
fj_children_next(FjChildren *c)
{
    c->number++;
    if (!fj_children_is_leaf(c)) {
        c->at = c->structure->info[c->at].subtree_end;
    }
}

/* The key of the child: a str for a name (a parameter or a field), (key,) for an item,
 * None where a path leaves the step out, as from an object to a dict field.  A new reference,
 * or NULL with an error. */
PyObject *fj_children_key(const FjChildren *c);

/* The path to a node: a new list of the keys from the root, or NULL with an error.  The
 * Structure may still have nodes that are not closed. */
PyObject *fj_path_of_node(const FjStructure *structure, uint32_t index);

/* The path to a leaf, which is counted from 0 among all leaves. */
PyObject *fj_path_of_leaf(const FjStructure *structure, Py_ssize_t leaf);

#endif
