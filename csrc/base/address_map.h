/* A map from addresses to numbers.
 *
 * The map holds no references.  The caller keeps the objects alive, or makes sure that a
 * reused address does no harm. */
#pragma once

#include "base/common.h"

typedef struct {
    const void *address; /* NULL if unused */
    uint32_t number;
} FjAddressEntry;

typedef struct {
    FjAddressEntry *entries;
    size_t mask; /* capacity - 1 */
    size_t count;
} FjAddressMap;

/* Returns the number of an address, or -1 if absent. */
Py_ssize_t fj_address_map_find(const FjAddressMap *map, const void *address);

/* Adds an address that must not be in the map.  0, or -1 with MemoryError and the map
 * unchanged. */
int fj_address_map_add(FjAddressMap *map, const void *address, uint32_t number);

void fj_address_map_clear(FjAddressMap *map);
