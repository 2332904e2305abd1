/* A flat record of containers: the address of each, its type and a copy of its references.
 * One loop over the record, at a few instructions per container, shows without a walk that
 * nothing has changed: in a static (snapshot.h) or in a large argument (walk/known.h).
 *
 * A record holds no references.  Its maker ensures that each address it follows belongs to a
 * live object.  Without memory, no record is made. */
#pragma once

#include "base/common.h"
#include "structure/node_kind.h"

/* The storage of a container's references. */
typedef enum {
    /* In one block: */
    FJ_IN_LIST,
    FJ_IN_TUPLE,
    FJ_IN_STR_DICT, /* the entries of a dict, if all keys have always been exactly str ... */
    FJ_IN_DICT,     /* ... and of any other dict */
    FJ_IN_VALUES,   /* the array of an instance's attributes */
    /* Elsewhere: */
    FJ_IN_SLOTS,      /* the fields of an object, all in slots */
    FJ_IN_FIELDS,     /* the fields of an object, stored anywhere */
    FJ_IN_ITS_DICT,   /* an instance's __dict__, which is the next container */
    FJ_IN_EMPTY_DICT, /* nowhere, while the instance's __dict__ is empty */
    FJ_IN_SNAPSHOT    /* a static; its only reference is to its snapshot */
} FjPlace;

/* True if a static equals its snapshot: fj_snapshot_is_same. */
typedef struct FjRecorded FjRecorded;
typedef int (*FjSameStatic)(const FjRecorded *recorded, PyObject *const *snapshot);

struct FjRecorded {
    PyObject *object;
    PyTypeObject *type;
    FjNodeKind *kind; /* of an object, with fields that must stay plain; or NULL */
    Py_ssize_t size;  /* number of items, words of a dict's entries, or set attributes */
    FjPlace place;
    uint32_t array; /* 1 + number of the array leaf, if that is the only child of an object in
                     * slots; or 0 */
    FjSameStatic is_same; /* FJ_IN_SNAPSHOT */
};

typedef struct {
    void *items;
    Py_ssize_t count, capacity;
} FjVector;

typedef struct {
    FjVector containers; /* of FjRecorded, each before its children */
    FjVector items;      /* addresses: the containers' references in a row */
    int failed;          /* something could not be recorded */
} FjRecord;

/* Appends `count` items of this size.  Returns the first item, or NULL without memory. */
void *fj_vector_append(FjVector *vector, Py_ssize_t count, size_t size);

/* 1, or 0 without memory. */
int fj_vector_append_addresses(FjVector *vector, PyObject *const *addresses, Py_ssize_t count);

void fj_vector_clear(FjVector *vector);

void fj_record_clear(FjRecord *record);

/* Adds a container with these references.  NULL if `items` is NULL, or without memory. */
FjRecorded *fj_record_add(FjRecord *record, PyObject *object, FjPlace place,
                          PyObject *const *items, Py_ssize_t size);

/* For a list or a tuple. */
void fj_record_add_items(FjRecord *record, PyObject *object, FjPlace place);

void fj_record_add_dict(FjRecord *record, PyObject *dict);

/* NULL if the fields aren't plain or not in their storage. */
FjRecorded *fj_record_add_fields(FjRecord *record, PyObject *object, FjNodeKind *kind);

/* Adds a value that equals a snapshot. */
void fj_record_add_static(FjRecord *record, PyObject *value, void *snapshot,
                          FjSameStatic is_same);

/* True if all types and references are the same.  Doesn't compare an array leaf in a slot
 * (FjRecorded.array) but stores the current one in `arrays`. */
int fj_record_is_same(const FjRecord *record, PyObject **arrays);
