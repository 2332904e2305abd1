/* Peeks at Modules and objects (kinds.h). */
#pragma once

#include "structure/fields.h"
#include "structure/structure.h"

/* True if a Module has as many attributes as a node's. */
static inline int
fj_peek_is_alike(const FjNode *node, Py_ssize_t used)
{
    return (used != fj_node_kind_fields(fj_node_kind(node))) ==
           !!(node->flags & FJ_NODE_WRAPPER);
}

/* Returns the children of a Module (borrowed) if its storage has them in order, or NULL. */
static inline PyObject *const *
fj_peek_stored(const FjNode *node, const FjFieldView *view)
{
    return FJ_LIKELY(view->values != NULL && fj_fields_in_order(fj_node_kind(node)) &&
                     !(node->flags & FJ_NODE_WRAPPER))
               ? view->values
               : NULL;
}
