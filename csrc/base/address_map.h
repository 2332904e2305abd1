/* A map from addresses to numbers.
 *
 * It holds no references: the caller sees to it that no object dies while its address is in
 * the map, or that it does not matter.
 */
#pragma once

#include "base/common.h"

typedef struct {
    const void *address; /* NULL where there is none */
    uint32_t number;
} FjAddressEntry;

/* All members are 0 while the map is empty. */
typedef struct {
    FjAddressEntry *entries;
    size_t mask; /* the number of entries - 1 */
    size_t count;
} FjAddressMap;

/* The number of an address; -1 if it is not in the map. */
Py_ssize_t fj_address_map_find(const FjAddressMap *map, const void *address);

/* Adds an address that is not in the map.  0, or -1 with MemoryError and the map unchanged. */
int fj_address_map_add(FjAddressMap *map, const void *address, uint32_t number);

/* Frees the entries.  The map is empty again. */
void fj_address_map_clear(FjAddressMap *map);
