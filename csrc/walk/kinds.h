/* Each kind of container has a reader, which reads the children of an object and builds one.
 *
 * A miss, a prefix and some containers of a match are read in one way: `read` returns the node
 * that the object would have, with references to the children.  A match usually *peeks*: it
 * knows the node, and borrows the children without running Python code.  The functions named
 * fj_peek_... are in the headers of the kinds (kind_dicts.h, kind_instances.h). */
#pragma once

#include "base/scratch.h"
#include "walk/build.h"

/* A result of peeking. */
#define FJ_PEEK_NEEDS_PYTHON (-2) /* can't be read without Python code */

/* An object as the node it would have, and its children. */
typedef struct {
    /* Set by the caller: */
    FjRegistry *registry;
    FjScratch *scratch;
    PyObject *keys; /* of a dict, in this order (borrowed); NULL to sort its keys */
    int is_new;     /* for a new node, which stores how to build the object */

    /* Set by `read`: */
    FjKindCode code;
    int flags;           /* of the node */
    int runs_python;     /* matching the node runs Python code */
    PyTypeObject *type;  /* as in FjNodeInfo.type; borrowed from the object */
    PyObject *aux;       /* as in FjNode.aux; owned, or NULL */
    PyObject *aux_data;  /* CUSTOM: owned, or NULL */
    Py_ssize_t count;    /* of the children */
    PyObject **children; /* NULL if absent.  Owned by `owner` or, without one, by this */
    PyObject *owner;     /* an immutable sequence (owned), or NULL */
    Py_ssize_t trees, trees_end;  /* these children are trees, the others static fields */
    const uint8_t *dict_children; /* true for a dict field (FjNodeKind.dict_fields), or NULL */
    const char *failed_to;        /* with an error: the operation of the error context */
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
    contents->children = fj_scratch_push(contents->scratch, count);
    contents->count = contents->trees_end = count;
    return contents->children == NULL ? -1 : 0;
}

/* The children are the items of a tuple (stolen; NULL is an earlier error).  1 or -1. */
static inline int
fj_contents_of_tuple(FjContents *contents, PyObject *tuple)
{
    if (tuple == NULL) {
        return -1;
    }
    contents->owner = tuple;
    contents->count = contents->trees_end = PyTuple_GET_SIZE(tuple);
    contents->children = ((PyTupleObject *)tuple)->ob_item;
    return 1;
}

/* (P) Drops the references to children. */
static inline void
fj_contents_drop(FjScratch *scratch, PyObject *owner, PyObject **children, Py_ssize_t count)
{
    if (owner != NULL) {
        Py_DECREF(owner);
    }
    else if (children != NULL) {
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_XDECREF(children[i]);
        }
        fj_scratch_pop(scratch, children);
    }
}

/* (P) Drops all references. */
static inline void
fj_contents_clear(FjContents *contents)
{
    fj_contents_drop(contents->scratch, contents->owner, contents->children, contents->count);
    Py_XDECREF(contents->aux);
    Py_XDECREF(contents->aux_data);
}

/* True if child `i` is a tree and not static, by `trees` and `trees_end` of FjContents. */
static inline int
fj_is_tree_child(Py_ssize_t trees, Py_ssize_t trees_end, Py_ssize_t i)
{
    return trees <= i && i < trees_end;
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
