/* An open-addressing hash table from a hash to a Python object.
 *
 * The table stores hashes and values alone; the key lives inside the value (a variant holds
 * its Structure, a kind its type), and the caller's callback says whether a value is the one
 * that is looked for.  The table owns a reference to each value.
 *
 * The callback may run Python code, which may change this very table; a version counter
 * notices and the probe starts again.  Functions marked (P) may run Python code.
 */
#ifndef FJ_TABLE_H
#define FJ_TABLE_H

#include "base/common.h"

typedef struct {
    Py_hash_t hash;
    PyObject *value; /* NULL: never used; the table's own mark: deleted */
} FjTableEntry;

typedef struct {
    FjTableEntry *entries;
    size_t mask; /* size - 1; 0 with entries == NULL while empty */
    size_t live;
    size_t filled; /* live and deleted */
    uint64_t version;
} FjTable;

/* 1 when `value` is what `probe` looks for, 0 when not, -1 with an error. */
typedef int (*FjTableMatch)(PyObject *value, const void *probe);

/* (P) 1 with a new reference in `*value`, 0 when there is none, -1 with an error. */
int fj_table_find(FjTable *table, Py_hash_t hash, FjTableMatch match, const void *probe,
                  PyObject **value);

/* Adds `value` under `hash` without looking for an equal one.  0, or -1 with MemoryError and
 * the table as it was. */
int fj_table_add(FjTable *table, Py_hash_t hash, PyObject *value);

/* (P) Takes out `value`, found by identity.  1 when it was there, 0 when not. */
int fj_table_remove(FjTable *table, Py_hash_t hash, PyObject *value);

/* (P) Empties the table and frees its room. */
void fj_table_clear(FjTable *table);

/* Where `value` stands, found by identity; -1 when it is not there.  It stays there until the
 * table grows. */
Py_ssize_t fj_table_position(const FjTable *table, Py_hash_t hash, const PyObject *value);

/* The live value at a position, borrowed; NULL where none is, or none any more. */
PyObject *fj_table_at(const FjTable *table, size_t position);

/* The next live value at or after `*position` (start at 0), borrowed; NULL at the end.  The
 * table must not change meanwhile. */
PyObject *fj_table_next(const FjTable *table, size_t *position);

int fj_table_traverse(const FjTable *table, visitproc visit, void *arg);

#endif
