/* Builds (unflattens) a tree from its Structure and its arrays. */
#pragma once

#include "base/common.h"
#include "base/scratch.h"
#include "structure/fields.h"
#include "structure/structure.h"

/* Python code can run (see build.c).  The caller holds the Structure and the leaves. */

/* `arrays` are any objects, one per array leaf. */
PyObject *fj_build_tree(FjStructure *structure, PyObject *const *arrays);

/* Returns the arguments of a call as a new list.  The registry stands for an absent one. */
PyObject *fj_build_arguments(FjStructure *structure, PyObject *const *arrays);

/* ---- for build.c and the readers (kinds.h): the state of a walk that builds a tree ---- */

#define FJ_BUILD_SHARED 4 /* factories with a shared result */

typedef struct {
    FjStructure *structure;
    const FjNode *next;
    PyObject *const *arrays; /* the next array */
    PyObject *registry;
    PyObject *missing;
    PyObject *no_arguments; /* the empty tuple */
    /* The objects of a tree share the result of a factory (FjNodeKind.factories). */
    struct {
        PyObject *factory; /* borrowed from a kind */
        PyObject *made;    /* owned */
    } shared[FJ_BUILD_SHARED];
    int num_shared;
    /* The objects by number, for REF nodes; NULL until built.  NULL if there is no REF. */
    PyObject **numbered; /* owned, or NULL */
    uint32_t next_number;
} FjBuilder;

/* (P) Builds the subtree at the next node, which isn't a leaf. */
PyObject *fj_build_container(FjBuilder *b);

/* (P) Builds the subtree at the next node. */
static inline PyObject *
fj_build_node(FjBuilder *b)
{
    const FjNode *node = b->next;
    if (FJ_LIKELY(node->code == FJ_ARRAY)) {
        b->next++;
        return Py_NewRef(*b->arrays++);
    }
    if (FJ_LIKELY(node->code == FJ_STATIC)) {
        b->next++;
        return Py_NewRef(node->aux);
    }
    return fj_build_container(b);
}

/* (P) Builds the children of a node into `container`, a new tuple or list, and returns it. */
PyObject *fj_build_items(FjBuilder *b, const FjNode *node, PyObject *container);

static inline void
fj_drop_children(PyObject **children, uint32_t count)
{
    while (count > 0) {
        Py_XDECREF(children[--count]);
    }
}

/* (P) Builds the children before the node itself.  With `are_fields`, an absent child becomes
 * NULL.  0, or -1 with an error and no references. */
static inline int
fj_build_children(FjBuilder *b, const FjNode *node, int are_fields, PyObject **children)
{
    for (uint32_t i = 0; i < node->arity; i++) {
        if (are_fields && FJ_UNLIKELY(b->next->code == FJ_MISSING)) {
            b->next++;
            children[i] = NULL;
        }
        else if ((children[i] = fj_build_node(b)) == NULL) {
            fj_drop_children(children, i);
            return -1;
        }
    }
    return 0;
}

/* (P) fj_build_children, then `make`, which steals the children, an array of `size` items. */
static inline PyObject *
fj_build_of_children(FjBuilder *b, const FjNode *node, int are_fields, Py_ssize_t size,
                     PyObject *(*make)(FjBuilder *, const FjNode *, PyObject **))
{
    PyObject *stack[FJ_FIELDS_INLINE], *result = NULL;
    PyObject **children = fj_scratch_new(stack, FJ_FIELDS_INLINE, size);
    if (children != NULL && fj_build_children(b, node, are_fields, children) == 0) {
        result = make(b, node, children);
    }
    fj_scratch_free(children, stack);
    return result;
}
