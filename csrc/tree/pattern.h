/* A path pattern, such as `layers[*].weight`, held against the paths of a Structure's leaves.
 *
 * The Python side has taken the pattern apart: a tuple of components, each a tuple
 *
 *   ("any",)                one key, whatever it is
 *   ("deep",)               any number of keys, none too
 *   ("name", text)          the key whose simple text this is
 *   ("glob", matches)       a key by its simple text: matches(text) is true
 *   ("index", number)       an item of a sequence, from its end where negative; a dict's int
 * key
 *   ("slice", a, b, c)      items of a sequence: a slice's indices, or None
 */
#ifndef FJ_PATTERN_H
#define FJ_PATTERN_H

#include "base/common.h"
#include "structure/structure.h"

/* Sets `taken[i]` to 1 for each leaf of the Structure whose whole path matches, else to 0.  0,
 * or -1 with an error: ValueError where no leaf matches but an inner node does, which is an
 * easy mistake to make.  Runs Python code: see pattern.c. */
int fj_pattern_match(FjStructure *structure, PyObject *components, uint8_t *taken);

#endif
