/* The state of a walk that builds a tree, and what build.c and build_containers.c have in
 * common.
 *
 * Functions marked (P) may run Python code, and return a new reference, or NULL with an error.
 */
#ifndef FJ_BUILD_WALK_H
#define FJ_BUILD_WALK_H

#include "base/common.h"
#include "structure/structure.h"
#include "walk/build.h"

#define FJ_BUILD_FACTORIES 4 /* factories whose results have room in a FjBuilder */

typedef struct {
    FjStructure *structure;
    const FjNode *next;
    PyObject *const *arrays; /* the next array */
    PyObject *registry;
    PyObject *missing;
    PyObject *no_arguments; /* the empty tuple */
    /* The results of factories (FjNodeKind.factories), which a tree shares. */
    PyObject *factories[FJ_BUILD_FACTORIES]; /* borrowed from the kinds */
    PyObject *made[FJ_BUILD_FACTORIES];      /* owned */
    int num_factories;
    /* If there are REF nodes: the objects that they may refer to, by number; NULL while one is
     * being built. */
    PyObject **numbered; /* owned, or NULL */
    uint32_t next_number;
} FjBuilder;

/* (P) Builds what fj_build_node does not. */
PyObject *fj_build_container(FjBuilder *b);

/* (P) Builds the subtree at the next node of the Structure. */
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

#endif
