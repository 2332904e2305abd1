/* Open addressing, at most half full.  Runs no Python code. */
#include "base/address_map.h"

#include "base/hash.h"

#define FEWEST 64 /* the first capacity */

/* Returns the entry of an address, or the unused entry in which to store it. */
static FjAddressEntry *
find_entry(const FjAddressMap *map, const void *address)
{
    size_t i = (size_t)fj_hash_address(address) & map->mask;
    while (map->entries[i].address != NULL && map->entries[i].address != address) {
        i = (i + 1) & map->mask;
    }
    return &map->entries[i];
}

Py_ssize_t
fj_address_map_find(const FjAddressMap *map, const void *address)
{
    if (map->count == 0) {
        return -1;
    }
    const FjAddressEntry *entry = find_entry(map, address);
    return entry->address == NULL ? -1 : (Py_ssize_t)entry->number;
}

static int
grow(FjAddressMap *map)
{
    size_t size = map->entries == NULL ? FEWEST : (map->mask + 1) * 4;
    FjAddressMap larger = {.entries = PyMem_Calloc(size, sizeof(FjAddressEntry)),
                           .mask = size - 1,
                           .count = map->count};
    if (larger.entries == NULL) {
        return fj_raise_no_memory();
    }
    for (size_t i = 0; map->entries != NULL && i <= map->mask; i++) {
        if (map->entries[i].address != NULL) {
            *find_entry(&larger, map->entries[i].address) = map->entries[i];
        }
    }
    PyMem_Free(map->entries);
    *map = larger;
    return 0;
}

int
fj_address_map_add(FjAddressMap *map, const void *address, uint32_t number)
{
    if ((map->entries == NULL || (map->count + 1) * 2 > map->mask + 1) && grow(map) < 0) {
        return -1;
    }
    *find_entry(map, address) = (FjAddressEntry){address, number};
    map->count++;
    return 0;
}

void
fj_address_map_clear(FjAddressMap *map)
{
    PyMem_Free(map->entries);
    *map = (FjAddressMap){.entries = NULL};
}
