/* Path patterns such as `layers[*].weight`: which leaves of a Structure have a path that
 * matches.
 *
 * _trees/_filters.py parses a pattern into a tuple of components, each of which is
 *
 *   None        any one key
 *   ...         any number of keys, including none: "deep"
 *   a str       the key whose str() is this name
 *   an int      the item of a sequence at this index, which counts from the end if it is
 *               negative, or the item of a dict with this int as key
 *   a slice     the items of a sequence in this slice
 *   a function  a key for which function(str(key)) is true: a "glob"
 */
#pragma once

#include "base/common.h"
#include "structure/structure.h"

/* Clears the byte of each leaf in the mask, which has one for each leaf, whose whole path does
 * not match.  0, or -1 with an error.  `is_strict` makes it a ValueError if no leaf matches,
 * but for a pattern that ends in "deep" and names a node without leaves: a name that is
 * spelled wrong would select nothing.  May run Python code: see pattern.c. */
int fj_pattern_match(FjStructure *structure, PyObject *components, int is_strict,
                     uint8_t *mask);
