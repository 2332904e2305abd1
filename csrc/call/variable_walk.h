/* Collects the Variables in the arguments of a call, and sees whether they can be updated.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_VARIABLE_WALK_H
#define FJ_VARIABLE_WALK_H

#include "base/address_map.h"
#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"
#include "walk/match.h"
#include "call/memo.h"

/* What is remembered of a Variable or Pytree that a walk has met. */
typedef struct {
    const PyObject *object; /* its address, which is only compared */
    PyTypeObject *type;     /* owned */
    FjNodeKind *kind;       /* owned: of the type, or what the Pytree described */
    /* Owned. Of a Variable, its TraceState, which is that of the top level, or NULL if that
     * was not looked at.  Of a Pytree, its `_pytree__nodes`, which never changes in place. */
    PyObject *state;
    Py_ssize_t nodes;       /* of a Pytree, the index of the name "_pytree__nodes" */
    Py_ssize_t trace_state; /* of a Variable, the offset of its slot `_trace_state`; or 0 */
} FjSeen;

/* What a walk has met in an argument that the memo then had a snapshot of. */
typedef struct {
    unsigned long long number;    /* of the snapshot; 0 if there is none */
    Py_ssize_t first, count;      /* among the items of the list */
    uint32_t first_ref, num_refs; /* among its `refs` */
} FjSeenCapture;

/* What the last walk has met, in order. */
typedef struct {
    FjSeen *items; /* no object twice */
    Py_ssize_t count;
    Py_ssize_t capacity;
    FjRef *refs; /* where an object occurred again: as in a Structure */
    uint32_t num_refs;
    uint32_t ref_capacity;
    FjSeenCapture captures[FJ_MEMO_ARGUMENTS];
} FjSeenList;

/* (P) Drops what is remembered. */
void fj_seen_clear(FjSeenList *seen);

int fj_seen_traverse(const FjSeenList *seen, visitproc visit, void *arg);

/* A Pytree whose children are being walked. */
typedef struct FjOpenPytree FjOpenPytree;
struct FjOpenPytree {
    Py_ssize_t number;
    const FjOpenPytree *parent;
};

typedef struct {
    FjRegistry *registry;
    PyTypeObject *variable_type;
    Py_ssize_t raw_value;   /* the offset of its slot `_raw_value` */
    PyTypeObject *key_type; /* of arrays of random keys */
    int graph;              /* graph mode: see walk_leaf and meet_again; 2 with updates of the
                             * graph */
    int lenient;            /* any leaf will do, and any trace level */
    int unsettled;          /* out: a Variable's value is to become an array of JAX */
    FjLeafBuf *variables;   /* receives the Variables */
    FjLeafBuf *nodes;       /* receives the Variables and Pytrees, or NULL */
    PyObject *reason;       /* out: why a call is handed over, a new str, or NULL */
    int ran_python;         /* out: Python code may have run */

    /* Private. */
    FjSeenList seen;
    Py_ssize_t position;      /* the number of Variables and Pytrees that were met */
    uint32_t ref;             /* how often one was met again */
    int same;                 /* all of it is as in the last walk */
    int counts_frames;        /* of the C stack: see fj_compat_enter_frames */
    const FjOpenPytree *open; /* the innermost one, or NULL */
    FjAddressMap numbers;     /* if not `same`: of the Variables and Pytrees that were met */
} FjVariableWalk;

/* Starts a walk; `*seen` is moved into it. */
void fj_variable_walk_start(FjVariableWalk *walk, FjSeenList *seen);

/* (P) Walks a tree: 1, 0 with `reason` set if the call must be handed over, or -1 with an
 * error.  The Variables are in the order in which flatten.c meets them, each once. */
int fj_variable_walk(FjVariableWalk *walk, PyObject *tree);

/* (P) The same for an argument that the memo has found to be unchanged since it took the
 * snapshot; no Python code has run since: `ran_python` is 0. */
int fj_variable_walk_captured(FjVariableWalk *walk, const FjCapture *capture);

/* Whether the walk, which is not over yet, has met as many Variables and Pytrees as have a
 * number in a Structure of the same arguments, and each again where the Structure has a REF to
 * it. */
int fj_variable_walk_fits(const FjVariableWalk *walk, const FjStructure *structure);

/* (P) Ends a walk, and moves what it has met into `*seen`. */
void fj_variable_walk_end(FjVariableWalk *walk, FjSeenList *seen);

#endif
