/* Each kind of node except leaves has a reader, which flattens, builds and compares it. */
#pragma once

#include "walk/build.h"
#include "walk/flatten.h"

typedef struct {
    /* (P) Opens the object's node, walks its children, and closes the node. */
    int (*flatten)(FjFlattener *f, PyObject *object, FjNodeKind *kind);

    /* (P) Builds the object of a node that `next` has just passed. */
    PyObject *(*build)(FjBuilder *b, const FjNode *node);

#if FJ_FREE_THREADED
    /* (P) Compares an object of the node's type (compare.c).  1, 0 if `flatten` must do it
     * (nothing has changed then), or -1.  NULL if `flatten` always does. */
    int (*compare)(FjFlattener *f, const FjNode *node, PyObject *object);
#define FJ_COMPARE(function) (function)
#else
#define FJ_COMPARE(function)
#endif
} FjReader;

/* All codes with a reader.  Callers walk leaves, the call root and absent children. */
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

extern const FjReader *const fj_readers[FJ_CODE_COUNT]; /* NULL for codes without a reader */
