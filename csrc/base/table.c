/* Open addressing with the perturbed probe of CPython's dict, at most two thirds full.
 *
 * Deleted entries are marked DELETED, so probes continue past them.  Growing the table removes
 * them.
 *
 * Invariants: `mask + 1` is a power of two.  At least one entry is unused, so every probe
 * ends.  `version` changes whenever an entry is added, removed or moved.
 *
 * Python code can run in the callback of fj_table_find, and in fj_table_find, fj_table_remove
 * and fj_table_clear when they drop a reference.  The table is consistent at these points. */
#include "base/table.h"

#define FJ_TABLE_SMALLEST 8
#define FJ_PERTURB_SHIFT 5

/* No Python object has this address.  A variable's address won't do: filterjit._testing has
 * its own copy of all variables, and searches tables of filterjit._core. */
#define DELETED ((PyObject *)1)

static inline int
is_live(const FjTableEntry *entry)
{
    return entry->value != NULL && entry->value != DELETED;
}

static void
place(FjTableEntry *entries, size_t mask, Py_hash_t hash, PyObject *value)
{
    size_t perturb = (size_t)hash;
    size_t i = perturb & mask;
    while (entries[i].value != NULL) {
        perturb >>= FJ_PERTURB_SHIFT;
        i = (i * 5 + perturb + 1) & mask;
    }
    entries[i].hash = hash;
    entries[i].value = value;
}

static int
make_room(FjTable *table)
{
    size_t size = table->entries == NULL ? 0 : table->mask + 1;
    if ((table->filled + 1) * 3 <= size * 2) {
        return 0;
    }
    size_t new_size = FJ_TABLE_SMALLEST;
    while (new_size * 2 < (table->live + 1) * 6) {
        new_size *= 2;
    }
    FjTableEntry *entries = PyMem_Calloc(new_size, sizeof(FjTableEntry));
    if (entries == NULL) {
        return fj_raise_no_memory();
    }
    for (size_t i = 0; i < size; i++) {
        if (is_live(&table->entries[i])) {
            place(entries, new_size - 1, table->entries[i].hash, table->entries[i].value);
        }
    }
    PyMem_Free(table->entries);
    table->entries = entries;
    table->mask = new_size - 1;
    table->filled = table->live;
    return 0;
}

int
fj_table_find(FjTable *table, Py_hash_t hash, FjTableMatch match, const void *probe,
              PyObject **found)
{
restart:
    *found = NULL;
    if (table->entries == NULL) {
        return 0;
    }
    size_t perturb = (size_t)hash;
    size_t i = perturb & table->mask;
    for (;;) {
        FjTableEntry entry = table->entries[i];
        if (entry.value == NULL) {
            return 0;
        }
        if (entry.value != DELETED && entry.hash == hash) {
            uint64_t version = table->version;
            Py_INCREF(entry.value);
            int same = match(entry.value, probe);
            if (same > 0) {
                *found = entry.value;
                return 1;
            }
            Py_DECREF(entry.value);
            if (same < 0) {
                return -1;
            }
            if (table->version != version) {
                goto restart;
            }
        }
        perturb >>= FJ_PERTURB_SHIFT;
        i = (i * 5 + perturb + 1) & table->mask;
    }
}

int
fj_table_add(FjTable *table, Py_hash_t hash, PyObject *value)
{
    if (make_room(table) < 0) {
        return -1;
    }
    place(table->entries, table->mask, hash, Py_NewRef(value));
    table->live++;
    table->filled++;
    table->version++;
    return 0;
}

Py_ssize_t
fj_table_position(const FjTable *table, Py_hash_t hash, const PyObject *value)
{
    if (table->entries == NULL) {
        return -1;
    }
    size_t perturb = (size_t)hash;
    size_t i = perturb & table->mask;
    while (table->entries[i].value != NULL) {
        if (table->entries[i].value == value) {
            return (Py_ssize_t)i;
        }
        perturb >>= FJ_PERTURB_SHIFT;
        i = (i * 5 + perturb + 1) & table->mask;
    }
    return -1;
}

PyObject *
fj_table_at(const FjTable *table, size_t position)
{
    return table->entries != NULL && position <= table->mask &&
                   is_live(&table->entries[position])
               ? table->entries[position].value
               : NULL;
}

int
fj_table_remove(FjTable *table, Py_hash_t hash, PyObject *value)
{
    Py_ssize_t position = fj_table_position(table, hash, value);
    if (position < 0) {
        return 0;
    }
    table->entries[position].value = DELETED;
    table->live--;
    table->version++;
    Py_DECREF(value);
    return 1;
}

void
fj_table_clear(FjTable *table)
{
    FjTableEntry *entries = table->entries;
    size_t size = entries == NULL ? 0 : table->mask + 1;
    table->entries = NULL;
    table->mask = table->live = table->filled = 0;
    table->version++;
    for (size_t i = 0; i < size; i++) {
        if (is_live(&entries[i])) {
            Py_DECREF(entries[i].value);
        }
    }
    PyMem_Free(entries);
}

PyObject *
fj_table_next(const FjTable *table, size_t *position)
{
    size_t size = table->entries == NULL ? 0 : table->mask + 1;
    while (*position < size) {
        const FjTableEntry *entry = &table->entries[(*position)++];
        if (is_live(entry)) {
            return entry->value;
        }
    }
    return NULL;
}

int
fj_table_traverse(const FjTable *table, visitproc visit, void *arg)
{
    size_t position = 0;
    PyObject *value;
    while ((value = fj_table_next(table, &position)) != NULL) {
        Py_VISIT(value);
    }
    return 0;
}
