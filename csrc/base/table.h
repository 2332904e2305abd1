/* A hash table of Python objects.
 *
 * The table stores only hashes and values.  The key is inside the value: a Variant holds its
 * Structure, and a NodeKind its type.  A callback decides if a value has the wanted key.  The
 * table owns a reference to each value.
 *
 * If the callback runs Python code that changes the table, the search restarts (`version`). */
#pragma once

#include "base/common.h"

typedef struct {
    Py_hash_t hash;
    PyObject *value; /* owned; NULL if never used, DELETED (table.c) if deleted */
} FjTableEntry;

typedef struct {
    FjTableEntry *entries;
    size_t mask;   /* capacity - 1; 0 while `entries` is NULL */
    size_t live;   /* with a value */
    size_t filled; /* with a value or deleted */
    uint64_t version;
} FjTable;

/* Returns 1 if `value` has the key `probe`, 0, or -1 with an error. */
typedef int (*FjTableMatch)(PyObject *value, const void *probe);

/* (P) Finds the value with this hash for which `match(value, probe)` is 1.  Returns 1 and
 * stores a new reference in `*value`, 0, or -1 with an error. */
int fj_table_find(FjTable *table, Py_hash_t hash, FjTableMatch match, const void *probe,
                  PyObject **value);

/* Adds a value without looking for an equal one.  On failure, the table is unchanged. */
int fj_table_add(FjTable *table, Py_hash_t hash, PyObject *value);

/* (P) Removes `value`, compared by identity.  1, or 0 if absent. */
int fj_table_remove(FjTable *table, Py_hash_t hash, PyObject *value);

/* (P) */
void fj_table_clear(FjTable *table);

/* The position of `value`, compared by identity, or -1.  Valid until the table grows. */
Py_ssize_t fj_table_position(const FjTable *table, Py_hash_t hash, const PyObject *value);

/* Returns the value at a position (borrowed), or NULL if it was removed or never used. */
PyObject *fj_table_at(const FjTable *table, size_t position);

/* Returns the first value at or after `*position` (borrowed) and advances `*position`, which
 * starts at 0.  NULL at the end.  The table must not change during an iteration. */
PyObject *fj_table_next(const FjTable *table, size_t *position);

int fj_table_traverse(const FjTable *table, visitproc visit, void *arg);
