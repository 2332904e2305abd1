/* Whether the Variables in the arguments of a call can be updated (variable_jit.c), or
 * upstream has to make the call.
 *
 * The functions return 1; 0 with `*reason` set to a new str, if the call must be handed over;
 * or -1 with an error.  Functions marked (P) may run Python code. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

typedef struct {
    FjRegistry *registry;        /* owned */
    PyTypeObject *variable_type; /* owned */
    PyTypeObject *key_type;      /* owned: of arrays of random keys */
    Py_ssize_t raw_value;        /* the offset of a Variable's slot `_raw_value` */
    int graph;                   /* graph mode: 0, 1, or 2 with updates of the graph */
} FjVariableRules;

/* Whether arguments of this Structure, with these numbered objects, are covered.  Any leaf
 * will do if `lenient`. */
int fj_variables_check_structure(const FjVariableRules *rules, const FjStructure *structure,
                                 const FjLeafBuf *objects, int lenient, PyObject **reason);

/* Whether upstream treats the leaves as the C core does, which traces them.  `*unsettled` is
 * set if a Variable's value is to become an array of JAX. */
int fj_variables_check_leaves(const FjVariableRules *rules, const FjStructure *structure,
                              PyObject *const *arrays, int *unsettled, PyObject **reason);

/* (P) Whether all Variables among the numbered objects are of the top trace level.  Moves them
 * to the front of `objects`, in their order, and sets `*count` to their number.  `states` are
 * the TraceStates that have been asked, of the Variable of each number in the last call. */
int fj_variables_check_states(const FjStructure *structure, FjLeafBuf *objects,
                              FjLeafBuf *states, Py_ssize_t *count, PyObject **reason);
