/* Checks if the Variables in a call's arguments can be updated (variable_jit.c), or if
 * upstream must make the call.
 *
 * All return 1; 0 and a new str in `*reason` to hand the call over; or -1 with an error. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

typedef struct {
    FjRegistry *registry;        /* owned */
    PyTypeObject *variable_type; /* owned */
    PyTypeObject *key_type;      /* owned: the type of arrays of random keys */
    Py_ssize_t raw_value;        /* the offset of a Variable's slot `_raw_value` */
    int graph;                   /* graph mode: 0, 1, or 2 with updates of the graph */
} FjVariableRules;

/* Checks the arguments' Structure and numbered objects.  With `lenient`, allows any leaf. */
int fj_variables_check_structure(const FjVariableRules *rules, const FjStructure *structure,
                                 const FjLeafBuf *objects, int lenient, PyObject **reason);

/* Checks that upstream traces the leaves.  Sets `*unsettled` if a Variable's value must become
 * a JAX array. */
int fj_variables_check_leaves(const FjVariableRules *rules, const FjStructure *structure,
                              PyObject *const *arrays, int *unsettled, PyObject **reason);

/* (P) Checks that all Variables among the numbered objects are on the top trace level.  Moves
 * them to the front of `objects`, in order, and sets `*count` to their number.  `states` has
 * the checked TraceState of each Variable in the last call, by number. */
int fj_variables_check_states(const FjStructure *structure, FjLeafBuf *objects,
                              FjLeafBuf *states, Py_ssize_t *count, PyObject **reason);
