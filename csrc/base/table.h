/* A hash table of Python objects.
 *
 * The table stores only hashes and values.  The key of a value is inside the value: a Variant
 * holds its Structure, and a NodeKind its type.  A callback of the caller decides whether a
 * value has the key that is looked up.  The table owns a reference to each value.
 *
 * The callback may run Python code, which may change the table that is being searched.  A
 * version counter detects this, and the search starts again.  Functions marked (P) may run
 * Python code.
 */
#pragma once

#include "base/common.h"

typedef struct {
    Py_hash_t hash;
    PyObject *value; /* owned; NULL if never used, DELETED (see table.c) if deleted */
} FjTableEntry;

typedef struct {
    FjTableEntry *entries;
    size_t mask;   /* the number of entries - 1; 0 while `entries` is NULL */
    size_t live;   /* entries with a value */
    size_t filled; /* entries with a value, and deleted ones */
    uint64_t version;
} FjTable;

/* Whether `value` has the key `probe`: 1, 0, or -1 with an error. */
typedef int (*FjTableMatch)(PyObject *value, const void *probe);

/* (P) Looks up the value with this hash for which `match(value, probe)` is 1.  1 with a new
 * reference in `*value`, 0 when there is none, -1 with an error. */
int fj_table_find(FjTable *table, Py_hash_t hash, FjTableMatch match, const void *probe,
                  PyObject **value);

/* Adds a value; does not check whether the table has an equal one.  0, or -1 with MemoryError
 * and the table unchanged. */
int fj_table_add(FjTable *table, Py_hash_t hash, PyObject *value);

/* (P) Removes `value`, which is compared by identity.  1, or 0 when it is not in the table. */
int fj_table_remove(FjTable *table, Py_hash_t hash, PyObject *value);

/* (P) Removes all values and frees the array of entries. */
void fj_table_clear(FjTable *table);

/* The position of `value`, which is compared by identity; -1 when it is not in the table.  The
 * position is valid until the table grows. */
Py_ssize_t fj_table_position(const FjTable *table, Py_hash_t hash, const PyObject *value);

/* The value at a position, borrowed; NULL where there is none, or where it was removed. */
PyObject *fj_table_at(const FjTable *table, size_t position);

/* Iterates over the values: returns the first one at or after `*position`, borrowed, and
 * advances `*position`; NULL at the end.  `*position` starts at 0.  The table must not change
 * during an iteration. */
PyObject *fj_table_next(const FjTable *table, size_t *position);

int fj_table_traverse(const FjTable *table, visitproc visit, void *arg);
