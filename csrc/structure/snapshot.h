/* The snapshot of a static value: a copy of its contents at one moment, which cannot change.
 * statics.h has the rule by which values are compared; snapshots are what is hashed and
 * compared of a value that is not inert.
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
 * It holds all of these objects, so none of their addresses becomes that of another object.  A
 * comparison reads what can change in an object (the items of a list) from the parts, never
 * from the object.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "base/common.h"
#include "structure/record.h"
#include "structure/registry.h"

typedef enum {
    FJ_PART_INERT,    /* an inert value */
    FJ_PART_OWN,      /* a value with an __eq__ and a __hash__ of its own; after it, what the
                       * hash is made of, if that is known: then the object itself is compared
                       * by these fields */
    FJ_PART_IDENTITY, /* a value that is compared by its address */
    FJ_PART_ANCESTOR, /* the value of the part so many levels up */
    /* With children: */
    FJ_PART_SEQUENCE, /* a tuple or a list: its items */
    FJ_PART_DICT,     /* a dict: its keys and values, in order */
    FJ_PART_SET,      /* a set or a frozenset: its items */
    FJ_PART_FIELDS,   /* an object: the fields by which its type says that it is compared */
    FJ_PART_KEY       /* a value of a type with a key: the key */
} FjSnapshotCode;

typedef struct {
    PyObject *object;   /* the value, owned; or NULL inside of an immutable one */
    PyTypeObject *type; /* of the value, owned; NULL for INERT and ANCESTOR */
    FjNodeKind *kind;   /* FIELDS, OWN, and an immutable KEY: the FjNodeKind.contents of the
                         * type, owned; or NULL */
    struct FjSnapshot *equal; /* of the last other value that Python code found equal, and that
                               * can be seen to be unchanged; or NULL */
    Py_hash_t hash;
    uint32_t children; /* their number; the levels of an ANCESTOR */
    uint32_t end;      /* the index of the first part after the subtree */
    uint8_t code;      /* an FjSnapshotCode */
    uint8_t immutable; /* nothing changes what the value is equal to */
    uint8_t stays;     /* KEY, SET: nothing changes the value itself, but perhaps what is in it
                        */
    uint8_t empty_dict; /* KEY: this is so as long as the value's __dict__ is empty */
    uint8_t deep;       /* its depth is a multiple of FJ_SNAPSHOT_DEEP */
} FjSnapshotPart;

/* A comparison looks at the stack at the parts of each such depth: see FJ_STRUCTURE_DEEP. */
#define FJ_SNAPSHOT_DEEP 24

typedef struct FjSnapshot {
    FjRegistry *registry; /* owned */
    FjSnapshotPart *parts;
    uint32_t count, capacity;
    FjRecord record;        /* of all objects in the value that can change, once they have been
                             * found to be those of the parts: as long as they refer to the
                             * same objects, the value equals the snapshot */
    int recorded;           /* whether there is a record, or cannot be one (`failed`) */
    int python_free;        /* no part needs Python code to see that the value is unchanged */
    int cyclic;             /* there is an ANCESTOR: only all of it can be compared */
    FjSnapshotPart room[2]; /* of a few parts */
} FjSnapshot;

/* (P) The snapshot of a value, for fj_snapshot_free.  NULL with an error, which is a TypeError
 * if the value is not hashable and `field`, whether it counts as a field (statics.h), is 0. */
FjSnapshot *fj_snapshot_take(FjRegistry *registry, PyObject *value, int field);

/* (P) Drops a snapshot, which may be NULL.  Keeps the exception that is set, if one is. */
void fj_snapshot_free(FjSnapshot *snapshot);

int fj_snapshot_traverse(const FjSnapshot *snapshot, visitproc visit, void *arg);

static inline Py_hash_t
fj_snapshot_hash(const FjSnapshot *snapshot)
{
    return snapshot->parts[0].hash;
}

/* (P) Whether two snapshots are equal: 1, 0, or -1 with an error. */
int fj_snapshot_equal(const FjSnapshot *a, const FjSnapshot *b);

/* What fj_snapshot_match returns where it would need Python code. */
#define FJ_SNAPSHOT_UNSEEN (-2)

/* Whether a value, which the caller holds, equals the snapshot now: 1, 0 or
 * FJ_SNAPSHOT_UNSEEN.  Runs no Python code, and does not fail. */
int fj_snapshot_match(FjSnapshot *snapshot, PyObject *value);

/* Whether fj_snapshot_match is 1 for a value in a record: an FjSameStatic. */
int fj_snapshot_is_same(const FjRecorded *recorded, PyObject *const *snapshot);

/* (P) The same with Python code, where it is needed: 1, 0, or -1 with an error. */
int fj_snapshot_has(FjSnapshot *snapshot, PyObject *value);

/* (P) Whether two values, both of which count as fields, are equal now: 1, 0, or -1 with an
 * error. */
int fj_static_equal_now(FjRegistry *registry, PyObject *a, PyObject *b);
