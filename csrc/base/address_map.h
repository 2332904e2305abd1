/* A map from addresses to numbers.
 *
 * It holds no references.  Keep the objects alive unless a reused address does no harm. */
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

/* Adds an address that isn't in the map.  On failure, the map is unchanged. */
int fj_address_map_add(FjAddressMap *map, const void *address, uint32_t number);

void fj_address_map_clear(FjAddressMap *map);
