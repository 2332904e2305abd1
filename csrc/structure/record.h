/* A flat record of containers: for each, its address, its type and a copy of the references
 * that it holds.  Comparing them takes a few instructions each, in one loop, and tells without
 * a walk that nothing has changed: in a static (snapshot.h), or in a large argument
 * (walk/known.h).
 *
 * A record holds nothing itself.  Whoever makes it sees to it that an address is that of a
 * live object where it is followed.
 *
 * Where there is no memory, there is no record.
 */
#pragma once

#include "base/common.h"
#include "structure/node_kind.h"

/* Where a container keeps the references to its children. */
typedef enum {
    /* In one block: */
    FJ_IN_LIST,
    FJ_IN_TUPLE,
    FJ_IN_STR_DICT, /* the entries of a dict whose keys have always been exactly str ... */
    FJ_IN_DICT,     /* ... and of any other one */
    FJ_IN_VALUES,   /* the array of an instance's attributes */
    /* Elsewhere: */
    FJ_IN_SLOTS,      /* the fields of an object, all in slots */
    FJ_IN_FIELDS,     /* the fields of an object, wherever they are */
    FJ_IN_ITS_DICT,   /* the __dict__ of an instance, which is the next container */
    FJ_IN_EMPTY_DICT, /* nowhere, as long as its __dict__ is empty */
    FJ_IN_SNAPSHOT    /* a static, whose only reference is to its snapshot */
} FjPlace;

/* Whether a static equals its snapshot: fj_snapshot_is_same. */
typedef struct FjRecorded FjRecorded;
typedef int (*FjSameStatic)(const FjRecorded *recorded, PyObject *const *snapshot);

struct FjRecorded {
    PyObject *object;
    PyTypeObject *type;
    FjNodeKind *kind; /* of an object, whose fields have to be plain; otherwise NULL */
    Py_ssize_t size;  /* the number of items, of words in the entries of a dict, or of
                       * attributes that are set */
    FjPlace place;
    uint32_t array; /* of an object in slots whose only child is an array leaf, the number of
                     * this leaf + 1; otherwise 0 */
    FjSameStatic is_same; /* FJ_IN_SNAPSHOT */
};

/* An array that grows. */
typedef struct {
    void *items;
    Py_ssize_t count, capacity;
} FjVector;

typedef struct {
    FjVector containers; /* of FjRecorded, each before its children */
    FjVector items;      /* addresses: copies of the containers' references in a row */
    int failed;          /* there is no record of something that was met */
} FjRecord;

/* Appends `count` items of this size: the first of them; NULL if there is no memory. */
void *fj_vector_append(FjVector *vector, Py_ssize_t count, size_t size);

/* Appends addresses.  1, or 0 without memory. */
int fj_vector_append_addresses(FjVector *vector, PyObject *const *addresses, Py_ssize_t count);

void fj_vector_clear(FjVector *vector);

/* Empties a record. */
void fj_record_clear(FjRecord *record);

/* Adds a container that holds these references: NULL if they are NULL, or without memory. */
FjRecorded *fj_record_add(FjRecord *record, PyObject *object, FjPlace place,
                          PyObject *const *items, Py_ssize_t size);

/* Adds a list or a tuple. */
void fj_record_add_items(FjRecord *record, PyObject *object, FjPlace place);

void fj_record_add_dict(FjRecord *record, PyObject *dict);

/* Adds the fields of an object: NULL if they are not where they are stored, or not plain. */
FjRecorded *fj_record_add_fields(FjRecord *record, PyObject *object, FjNodeKind *kind);

/* Adds a value that equals a snapshot. */
void fj_record_add_static(FjRecord *record, PyObject *value, void *snapshot,
                          FjSameStatic is_same);

/* Whether the containers have the same types and hold the same references.  The array leaf of
 * an object in slots is not compared: the object that is there now is stored in `arrays`. */
int fj_record_is_same(const FjRecord *record, PyObject **arrays);
