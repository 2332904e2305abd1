/* What the walks do with each kind of node that is no leaf: a row for each, in the file that
 * reads the kind.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_READER_H
#define FJ_READER_H

#include "walk/build_walk.h"
#include "walk/flatten_walk.h"

typedef struct {
    /* (P) Walks an object of the kind: opens its node, walks its children, and closes it.  0,
     * or -1 with an error. */
    int (*flatten)(FjFlattener *f, PyObject *object, FjNodeKind *kind);

    /* (P) Builds the object of a node, which `next` has just passed: a new reference, or NULL
     * with an error. */
    PyObject *(*build)(FjBuilder *b, const FjNode *node);

#if FJ_FREE_THREADED
    /* (P) Compares an object of the type that the node has (compare.c): 1, 0 if `flatten` has
     * to do so, with everything as it was, or -1; NULL if it always has to. */
    int (*compare)(FjFlattener *f, const FjNode *node, PyObject *object);
#define FJ_COMPARE(function) (function)
#else
#define FJ_COMPARE(function)
#endif
} FjReader;

/* The reader of each code: NULL for leaves and for the root of a call. */
extern const FjReader *const fj_readers[FJ_CODE_COUNT];

extern const FjReader fj_tuple_reader, fj_list_reader, fj_namedtuple_reader; /* sequences.c */
extern const FjReader fj_dict_reader, fj_other_dict_reader;                  /* dicts.c */
extern const FjReader fj_module_reader, fj_object_reader, fj_described_reader;
/* customs.c */
extern const FjReader fj_custom_reader;

#endif
