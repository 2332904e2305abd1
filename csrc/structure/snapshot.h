/* The snapshot of a static value: a copy of its contents at one moment, which can't change.  A
 * value that isn't inert is hashed and compared by its snapshot, by the rule in statics.h.
 *
 * A snapshot is an array of *parts*, each before its children:
 *
 *     config = Config(layers=[Layer(8), Layer(4)], name="net", owner=config)
 *
 *     i  part       children  object
 *     -  ---------  --------  ------
 *     0  FIELDS            3  config
 *     1   SEQUENCE         2  the list
 *     2    FIELDS          1  the first Layer
 *     3     INERT             8
 *     4    FIELDS          1  the second Layer
 *     5     INERT             4
 *     6   INERT               "net"
 *     7   ANCESTOR            1 level up
 *
 * It owns all of these objects, so their addresses can't be reused.  A comparison reads
 * mutable contents (the items of a list) from the parts, never from the object. */
#pragma once

#include "base/common.h"
#include "structure/record.h"
#include "structure/registry.h"
#include "structure/statics.h"

typedef enum {
    FJ_PART_INERT,
    FJ_PART_OWN_EQ,   /* a value with its own __eq__.  Its fields follow, if known, to compare
                       * the object with itself */
    FJ_PART_IDENTITY, /* a value that compares by its address */
    FJ_PART_ANCESTOR, /* the value of a part some levels up */
    /* With children: */
    FJ_PART_SEQUENCE, /* a tuple or list: its items */
    FJ_PART_DICT,     /* a dict, or a mappingproxy of one: its keys and values, in order */
    FJ_PART_SET,      /* a set or frozenset: its items */
    FJ_PART_FIELDS,   /* an object: the fields by which its type compares */
    FJ_PART_KEY       /* a value of a type with a key: the key */
} FjSnapshotCode;

enum {
    FJ_PART_FIXED = 1,       /* nothing changes what the value equals (statics.h) */
    FJ_PART_ITSELF = 2,      /* KEY, SET: equals itself while its contents do (statics.h) */
    FJ_PART_EMPTY_DICT = 4,  /* KEY: ITSELF only while the value's __dict__ is empty */
    FJ_PART_CHECKS_STACK = 8 /* the depth is a multiple of FJ_SNAPSHOT_STACK_STEP */
};

typedef struct {
    PyObject *object;   /* the value, owned; NULL inside a fixed value */
    PyTypeObject *type; /* of the value, owned; NULL for INERT and ANCESTOR */
    FjNodeKind *kind;   /* FIELDS, OWN_EQ, fixed KEY: its kind's contents, owned; or NULL */
    struct FjSnapshot *equal; /* of a value last found equal by Python code; or NULL */
    Py_hash_t hash;           /* of an ANCESTOR: how many levels up it is */
    uint32_t children;        /* their number */
    uint32_t end;             /* the first part after the subtree */
    uint8_t code;             /* an FjSnapshotCode */
    uint8_t flags;
} FjSnapshotPart;

/* A comparison checks the stack at multiples of this depth: see FJ_STRUCTURE_STACK_STEP. */
#define FJ_SNAPSHOT_STACK_STEP 24

typedef struct FjSnapshot {
    FjRegistry *registry; /* owned */
    FjSnapshotPart *parts;
    uint32_t count, capacity;
    FjRecord record;    /* of all mutable objects in the value: while their references are the
                         * same, the value equals the snapshot */
    int recorded;       /* `record` is complete, or can't be made (`failed`) */
    int may_run_python; /* even a match of the unchanged value */
    int cyclic;         /* contains an ANCESTOR, so parts can't be compared alone */
    FjSnapshotPart few[2]; /* for a few parts */
} FjSnapshot;

/* Returns the dict of a DICT part's value (borrowed): the value, or the dict behind a
 * mappingproxy.  NULL for any other value. */
PyObject *fj_snapshot_dict(PyObject *value);

/* (P) Returns a snapshot of a value with this rule, for fj_snapshot_free.  TypeError if
 * `value` is unhashable and not a `field` (statics.h). */
FjSnapshot *fj_snapshot_take(FjRegistry *registry, PyObject *value, FjStaticRule rule,
                             int field);

/* (P) `snapshot` can be NULL.  Keeps the current exception. */
void fj_snapshot_free(FjSnapshot *snapshot);

int fj_snapshot_traverse(const FjSnapshot *snapshot, visitproc visit, void *arg);

/* (P) 1, 0, or -1 with an error. */
int fj_snapshot_equal(const FjSnapshot *a, const FjSnapshot *b);

/* True if `value`, which the caller holds, currently equals the snapshot: 1, 0 or
 * FJ_NEEDS_PYTHON.  Runs no Python code and doesn't fail. */
int fj_snapshot_match(FjSnapshot *snapshot, PyObject *value);

/* An FjSameStatic: true if fj_snapshot_match is 1 for the recorded value. */
int fj_snapshot_is_same(const FjRecorded *recorded, PyObject *const *snapshot);

/* (P) fj_snapshot_match, with Python code if necessary.  1, 0, or -1 with an error. */
int fj_snapshot_has(FjSnapshot *snapshot, PyObject *value);

/* (P) Compares two values, both as fields, at this moment.  1, 0, or -1 with an error. */
int fj_static_equal_now(FjRegistry *registry, PyObject *a, PyObject *b);
