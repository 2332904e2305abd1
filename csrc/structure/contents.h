/* What a static value that can change in place consists of, by reference: whether it is as it
 * was, and whether another value equals it, without a snapshot (statics.h) and, for most
 * values, without Python code.
 *
 * The *contents* of a value are the references that are in it and in what it refers to, down
 * to values that cannot change: of
 *
 *     a list          its items
 *     a dict          its keys and values, in order
 *     an object whose type says by which attributes its values are compared
 *                     these attributes (FjNodeKind.contents): a frozen dataclass, a GraphDef
 *     an instance of a named tuple's subclass
 *                     that its __dict__ is empty
 *
 * A tuple and a frozenset are followed too, but have no contents, as they cannot change.
 *
 *     config = Config(layers=[Layer(8), Layer(4)], name="net")
 *
 *     object     place    references
 *     ------     -----    ----------
 *     config     FIELDS   the list, "net"
 *     the list   LIST     the first Layer, the second Layer
 *     Layer(8)   FIELDS   8
 *     Layer(4)   FIELDS   4
 *
 * If each of these objects is of the same class and holds the same references, the value is
 * what it was.  Contents hold all of them, so none of the addresses becomes that of another
 * object.  Values that hold anything else, such as a set or an instance of a class with an
 * __eq__ of its own, have no contents: their snapshots are compared each time.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_CONTENTS_H
#define FJ_CONTENTS_H

#include "base/common.h"
#include "structure/registry.h"

typedef struct FjContents FjContents;

/* (P) Sets `*contents` to the contents of a value that is not inert: for fj_contents_free; or
 * to NULL if it has none.  0, or -1 with an error. */
int fj_contents_take(FjRegistry *registry, PyObject *value, FjContents **contents);

/* Whether the value still has the contents that were taken, so that it equals what it was.
 * Runs no Python code. */
int fj_contents_are_same(const FjContents *contents);

/* (P) Drops the contents, which may be NULL. */
void fj_contents_free(FjContents *contents);

int fj_contents_traverse(const FjContents *contents, visitproc visit, void *arg);

/* (P) Whether two values are seen to be equal now, by the rule for static fields, without a
 * snapshot of either: 1; 0 if they differ or are not seen to be equal; or -1 with an error.
 * With `python_free`, it runs no Python code, and does not fail. */
int fj_contents_equal(FjRegistry *registry, PyObject *a, PyObject *b, int python_free);

/* (P) Whether two values, both of which count as fields, are equal now: 1, 0, or -1 with an
 * error. */
int fj_static_equal_now(FjRegistry *registry, PyObject *a, PyObject *b);

#endif
