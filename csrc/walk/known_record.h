/* What a record of an argument consists of: for known.c, which checks it and whose head says
 * why that is exact, and for known_record.c, which makes it.
 *
 * No Python code runs in these functions. */
#ifndef FJ_KNOWN_RECORD_H
#define FJ_KNOWN_RECORD_H

#include "base/common.h"
#include "structure/fields.h"
#include "walk/known.h"

/* Where a container keeps the references to its children. */
typedef enum {
    FJ_IN_LIST,
    FJ_IN_TUPLE,
    /* The entries of a dict that has only ever had keys that are exactly str ... */
    FJ_IN_STR_DICT,
    FJ_IN_DICT,     /* ... and of any other dict */
    FJ_IN_VALUES,   /* the array of an instance's attributes */
    FJ_IN_ITS_DICT, /* the __dict__ of an instance, which is the next container */
    FJ_IN_SLOTS,    /* the slots of an object, which are no block */
    FJ_IN_SNAPSHOT, /* a static, of which the Structure has a snapshot (snapshot.h) */
} FjKnownPlace;

typedef struct {
    PyObject *object;   /* an address: nothing here is owned */
    PyTypeObject *type; /* held by the Structure or by Python */
    FjNodeKind *kind;   /* of an object, held by the Structure; otherwise NULL */
    Py_ssize_t size;    /* the number of items, of words in the entries of a dict, or of
                         * attributes that are set */
    FjKnownPlace place;
    uint32_t array; /* of an object in slots whose only child is an array leaf, the number of
                     * this leaf + 1; otherwise 0 */
    uint32_t node;  /* FJ_IN_SNAPSHOT: the index of the node */
} FjKnownContainer;

/* An object that occurs again. */
typedef struct {
    PyObject *object;
    uint32_t number;
} FjKnownRef;

/* An array that grows. */
typedef struct {
    void *items;
    Py_ssize_t count, capacity;
} FjKnownVector;

struct FjKnownArgument {
    PyObject *object;         /* the address of the argument; NULL while nothing is known */
    PyObject *candidate;      /* the address of the argument of the last call */
    uint32_t parameter;       /* its index */
    uint32_t streak;          /* how many calls in a row had the candidate */
    uint32_t required_streak; /* the streak at which it is recorded */
    int failed;               /* there is no record of something in it */
    FjKnownVector containers; /* of FjKnownContainer */
    FjKnownVector items;      /* addresses: copies of the containers' blocks in a row */
    FjKnownVector arrays;     /* addresses of the array leaves, in order */
    FjKnownVector objects;    /* addresses of the numbered objects, in order */
    FjKnownVector refs;       /* of FjKnownRef */
};

/* Appends `count` items of this size: the first of them; NULL if there is no memory. */
static inline void *
fj_known_append(FjKnownVector *vector, Py_ssize_t count, size_t size)
{
    if (vector->capacity - vector->count < count) {
        Py_ssize_t capacity = Py_MAX(2 * vector->capacity, vector->count + count);
        void *items = PyMem_Realloc(vector->items, (size_t)capacity * size);
        if (items == NULL) {
            return NULL;
        }
        vector->items = items;
        vector->capacity = capacity;
    }
    vector->count += count;
    return (char *)vector->items + (size_t)(vector->count - count) * size;
}

static inline int
fj_known_append_addresses(FjKnownVector *vector, PyObject *const *addresses, Py_ssize_t count)
{
    PyObject **place = count == 0 ? NULL : fj_known_append(vector, count, sizeof(PyObject *));
    if (place != NULL) {
        memcpy(place, addresses, (size_t)count * sizeof(PyObject *));
    }
    return count == 0 || place != NULL;
}

/* Stands for the block of an empty list, which may have none. */
static PyObject *const fj_known_no_items[1] = {NULL};

/* The block of a container and its size.  NULL if it has no such block, as an instance that
 * keeps its attributes in a dict has no array of them, and a dict that shares its keys has no
 * entries. */
static inline PyObject *const *
fj_known_block(PyObject *object, FjKnownPlace place, Py_ssize_t *size)
{
    switch (place) {
    case FJ_IN_LIST:
        *size = PyList_GET_SIZE(object);
        return *size == 0 ? fj_known_no_items : ((PyListObject *)object)->ob_item;
    case FJ_IN_TUPLE:
        *size = PyTuple_GET_SIZE(object);
        return ((PyTupleObject *)object)->ob_item;
    case FJ_IN_VALUES:
        return fj_fields_values(object, size);
    default:
        return fj_compat_dict_entries(object, place == FJ_IN_STR_DICT, size);
    }
}

/* Whether getattr reads all attributes of an object in this place, and nowhere else. */
static inline int
fj_known_keeps_all(FjNodeKind *kind, FjKnownPlace place)
{
    return fj_fields_are_plain(kind) &&
           (place == FJ_IN_SLOTS ? kind->in_dict == 0 : fj_fields_are_in_dict(kind));
}

#endif
