/* What the walks do with each kind of node that is no leaf: a row for each, in the file that
 * reads the kind.
 *
 * Functions marked (P) may run Python code.
 */
#pragma once

#include "walk/build.h"
#include "walk/flatten.h"

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

/* The codes that have a reader, and the name of each.  Leaves have none, nor have the
 * root of a call and what is absent there, or of a Module: whoever has them walks them. */
#define FJ_READERS(ROW)                                                                       \
    ROW(FJ_TUPLE, fj_tuple_reader)                                                            \
    ROW(FJ_LIST, fj_list_reader)                                                              \
    ROW(FJ_NAMEDTUPLE, fj_namedtuple_reader)                                                  \
    ROW(FJ_DICT, fj_dict_reader)                                                              \
    ROW(FJ_ORDERED_DICT, fj_other_dict_reader)                                                \
    ROW(FJ_DEFAULT_DICT, fj_other_dict_reader)                                                \
    ROW(FJ_MODULE, fj_module_reader)                                                          \
    ROW(FJ_OBJECT, fj_object_reader)                                                          \
    ROW(FJ_DESCRIBED, fj_described_reader)                                                    \
    ROW(FJ_CUSTOM, fj_custom_reader)                                                          \
    ROW(FJ_NONE, fj_none_reader)                                                              \
    ROW(FJ_REF, fj_ref_reader)

#define FJ_DECLARE_READER(code, reader) extern const FjReader reader;
FJ_READERS(FJ_DECLARE_READER)

extern const FjReader *const fj_readers[FJ_CODE_COUNT]; /* NULL where there is none */
