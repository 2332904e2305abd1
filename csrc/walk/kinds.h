/* Each kind of container has a reader, which reads the children of an object and builds one.
 *
 * A miss, a prefix and some containers of a match are read in one way: `read` returns the node
 * that the object would have, with references to the children.  A match usually *peeks*: it
 * knows the node, and borrows the children without running Python code.  The functions named
 * fj_peek_... are in kind_dicts.h. */
#pragma once

#include "base/scratch.h"
#include "walk/build.h"

/* The children of a container that was read. */
typedef struct {
    PyObject **items; /* NULL if absent.  Owned by `owner` or, without one, by this */
    PyObject *owner;  /* an immutable sequence (owned), or NULL */
    Py_ssize_t count;
    Py_ssize_t trees, trees_end; /* these children are trees, the others static fields */
    const uint8_t *are_dicts;    /* true for a dict field (FjNodeKind.dict_fields), or NULL */
} FjReadChildren;

/* An object as the node it would have, and its children. */
typedef struct {
    /* Set by the caller: */
    FjRegistry *registry;
    FjScratch *scratch;
    PyObject *keys; /* of a dict, in this order (borrowed); NULL to sort its keys */
    int is_new;     /* for a new node, which stores how to build the object */

    /* Set by `read`: */
    FjKindCode code;
    int flags;          /* of the node */
    int runs_python;    /* matching the node runs Python code */
    PyTypeObject *type; /* as in FjNodeInfo.type; borrowed from the object */
    PyObject *aux;      /* as in FjNode.aux; owned, or NULL */
    PyObject *aux_data; /* CUSTOM: owned, or NULL */
    FjReadChildren children;
    const char *failed_to; /* with an error: the operation of the error context */
} FjContents;

typedef struct {
    /* (P) 1, 0 if other code changed the object meanwhile, or -1.  The caller clears
     * `contents`. */
    int (*read)(FjContents *contents, PyObject *object, FjNodeKind *kind);

    /* (P) Builds the object of a node that `next` has just passed. */
    PyObject *(*build)(FjBuilder *b, const FjNode *node);
} FjReader;

#define FJ_DECLARE_READER(code, name, value, keys, reader) extern const FjReader reader;
FJ_CODES(FJ_DECLARE_READER)

/* By code.  Callers read leaves, None, absent children, the call root and further occurrences
 * themselves: fj_no_reader. */
extern const FjReader *const fj_readers[FJ_CODE_COUNT];

/* Makes room for `count` children of which this holds references.  The reader sets them in
 * order, and `count` to their number if it fails.  0, or -1 with MemoryError. */
static inline int
fj_contents_reserve(FjContents *contents, Py_ssize_t count)
{
    contents->children = (FjReadChildren){.items = fj_scratch_push(contents->scratch, count),
                                          .count = count,
                                          .trees_end = count};
    return contents->children.items == NULL ? -1 : 0;
}

/* The children are the items of a tuple (stolen; NULL is an earlier error).  1 or -1. */
static inline int
fj_contents_of_tuple(FjContents *contents, PyObject *tuple)
{
    if (tuple == NULL) {
        return -1;
    }
    contents->children = (FjReadChildren){.items = ((PyTupleObject *)tuple)->ob_item,
                                          .owner = tuple,
                                          .count = PyTuple_GET_SIZE(tuple),
                                          .trees_end = PyTuple_GET_SIZE(tuple)};
    return 1;
}

/* (P) Drops the references to children. */
static inline void
fj_contents_drop(FjScratch *scratch, const FjReadChildren *children)
{
    if (children->owner != NULL) {
        Py_DECREF(children->owner);
    }
    else if (children->items != NULL) {
        for (Py_ssize_t i = 0; i < children->count; i++) {
            Py_XDECREF(children->items[i]);
        }
        fj_scratch_pop(scratch, children->items);
    }
}

/* (P) Drops all references. */
static inline void
fj_contents_clear(FjContents *contents)
{
    fj_contents_drop(contents->scratch, &contents->children);
    Py_XDECREF(contents->aux);
    Py_XDECREF(contents->aux_data);
}

/* True if child `i` is a tree and not static. */
static inline int
fj_contents_is_tree(const FjReadChildren *children, Py_ssize_t i)
{
    return children->trees <= i && i < children->trees_end;
}

/* True if child `i` is the dict of a dict field. */
static inline int
fj_contents_is_dict(const FjReadChildren *children, Py_ssize_t i)
{
    return children->are_dicts != NULL && children->are_dicts[i];
}

/* Raises a RuntimeError: other code changed the object while it was read.  Always -1. */
int fj_contents_changed(PyObject *object);

/* (P) Reads a container by its kind.  Results of FjReader.read. */
static inline int
fj_contents_read(FjContents *contents, PyObject *object, FjNodeKind *kind)
{
    int result = fj_readers[kind->code]->read(contents, object, kind);
    /* `type` is borrowed: the object holds it, unless Python code has changed its class. */
    int is_changed = contents->type != NULL && contents->type != Py_TYPE(object);
    return result > 0 && is_changed ? 0 : result;
}

/* (P) Reads a dict.  With `is_static`, its values are static fields. */
int fj_contents_read_dict(FjContents *contents, FjKindCode code, PyObject *dict,
                          int is_static);
