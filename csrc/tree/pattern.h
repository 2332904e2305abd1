/* Path patterns such as `layers[*].weight`: select the leaves of a Structure by their paths.
 *
 * _trees/_filters.py parses a pattern into a tuple of components:
 *
 *   None        any one key
 *   ...         any number of keys, including none: "deep"
 *   a str       the key whose str() is this name
 *   an int      the item of a sequence at this index (a negative one counts from the end),
 *               or the item of a dict with this int as its key
 *   a slice     the items of a sequence in this slice
 *   a function  a key for which function(str(key)) is true: a "glob" */
#pragma once

#include "base/common.h"
#include "structure/structure.h"

/* `mask` has a byte per leaf.  Clears the bytes of leaves with a path that doesn't match
 * completely.  With `is_strict`, raises a ValueError if no leaf matches, because a misspelled
 * name would select nothing.  A pattern that ends in "deep" and matches a node without leaves
 * is not an error.  Can run Python code: see pattern.c. */
int fj_pattern_match(FjStructure *structure, PyObject *components, int is_strict,
                     uint8_t *mask);
