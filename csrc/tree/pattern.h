/* Path patterns such as `layers[*].weight`: which leaves of a Structure have a path that
 * matches.
 *
 * _trees/_filters.py parses a pattern into a tuple of components, each of which is one of
 *
 *   ("any",)                      any one key
 *   ("deep",)                     any number of keys, including none
 *   ("name", text)                the key whose str() is `text`
 *   ("glob", matches)             a key for which matches(str(key)) is true
 *   ("index", number)             the item of a sequence at this index, which counts from the
 *                                 end if it is negative, or the item of a dict with this int
 *                                 as key
 *   ("slice", start, stop, step)  the items of a sequence in this slice; each number may be
 *                                 None
 */
#ifndef FJ_PATTERN_H
#define FJ_PATTERN_H

#include "base/common.h"
#include "structure/structure.h"

/* Sets `taken[i]` to 1 if the whole path of leaf i matches, else to 0.  0, or -1 with an
 * error.  `is_strict` makes it a ValueError if no leaf matches, but for a pattern that ends in
 * "deep" and names a node without leaves: a name that is spelled wrong would select nothing.
 * May run Python code: see pattern.c. */
int fj_pattern_match(FjStructure *structure, PyObject *components, int is_strict,
                     uint8_t *taken);

#endif
