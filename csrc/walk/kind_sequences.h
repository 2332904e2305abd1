/* Peeks at tuples, lists and named tuples (kinds.h).
 *
 * Set `*items` to the items (borrowed).  1, or 0 if their number differs from the node's. */
#pragma once

#include "structure/structure.h"

static inline int
fj_peek_tuple(const FjNode *node, PyObject *tuple, PyObject *const **items)
{
    *items = ((PyTupleObject *)tuple)->ob_item;
    return PyTuple_GET_SIZE(tuple) == (Py_ssize_t)node->arity;
}

static inline int
fj_peek_list(const FjNode *node, PyObject *list, PyObject *const **items)
{
    *items = ((PyListObject *)list)->ob_item;
    return PyList_GET_SIZE(list) == (Py_ssize_t)node->arity;
}
