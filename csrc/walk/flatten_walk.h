/* The state of a walk that flattens a tree, and what flatten.c (the walk, and leaves) and the
 * readers (reader.h) have in common.
 *
 * Functions marked (P) may run Python code.  Functions return 0, or -1 with an error, except
 * where they say something else.
 */
#ifndef FJ_FLATTEN_WALK_H
#define FJ_FLATTEN_WALK_H

#include "base/address_map.h"
#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"
#include "walk/expected.h"

typedef struct FjFlattener FjFlattener;
struct FjFlattener {
    FjStructure *structure;
    FjLeafBuf *arrays;
#if FJ_FREE_THREADED
    /* (P) Compares an object, which the caller holds, with what is expected exactly.  1 if it
     * is that; 0 if it is of a kind that flatten.c compares; or -1.  NULL where the walk does
     * not compare exactly. */
    int (*compare)(FjFlattener *f, PyObject *object);
#endif
    int is_tree_structure; /* every leaf counts as an array: fj_flatten_leaves */
    int none_is_leaf;
    /* The types of an array that the buffer holds and of a static that the Structure holds,
     * whose instances are all arrays, or all static, in this argument; NULL where each is
     * asked about. */
    const PyTypeObject *array_type, *static_type;
    int array_flags;    /* of the array nodes of this argument: FJ_NODE_NUMBERS or 0 */
    const char *choice; /* an FjChoose's answer for this argument */
    Py_ssize_t next_choice, num_choices;
    int may_stop;         /* there is an `is_leaf` or an `expected` */
    PyObject *is_leaf;    /* borrowed, or NULL */
    FjExpected *expected; /* what the tree is compared with, `structure`, to which nothing is
                           * appended then; or NULL */
    /* For the arguments of a call: the objects that have a number (Sharing in structure.h), in
     * order, and their numbers. */
    FjLeafBuf *objects;   /* or NULL */
    FjAddressMap numbers; /* empty if there is an `expected` */
};

/* (P) Walks an object, which the caller holds: adds its nodes, and pushes its arrays. */
int fj_flatten_object(FjFlattener *f, PyObject *object);

/* (P) Walks the items of a tuple or list, which the caller holds. */
int fj_flatten_items(FjFlattener *f, PyObject *items, Py_ssize_t size);

/* (P) Walks a dict, whose values are static fields if `is_static`. */
int fj_flatten_dict(FjFlattener *f, FjKindCode code, PyObject *dict, int is_static);

#if FJ_FREE_THREADED
/* (P) Compares the items of a list, or, if there are `names`, the values of a dict, with the
 * children of a node.  The dict has `size` of the names or, if it is a wrapper's, another
 * number of them.  1, 0 if it has another size or other keys, or -1. */
int fj_compare_children(FjFlattener *f, const FjNode *node, PyObject *container,
                        PyObject *names, Py_ssize_t size);

/* (P) Compares objects that are held with the next nodes, and gives arrays to the buffer: they
 * become NULL.  1 or -1. */
int fj_compare_held(FjFlattener *f, PyObject **items, Py_ssize_t count);

/* (P) Compares the next child, which the caller holds, with its node.  0 or -1. */
int fj_compare_child(FjFlattener *f, PyObject *object);
#endif

/* (P) Adds the value of a static field. */
int fj_flatten_field(FjFlattener *f, PyObject *value);

/* Raises a RuntimeError: other code has changed the object during the walk.  Where the walk
 * compares exactly, it differs from what is expected instead.  Always -1. */
int fj_flatten_changed(FjFlattener *f, PyObject *object);

/* (P) Adds the path of `object`, which gets no node of its own, to the current exception. */
void fj_flatten_add_context(FjFlattener *f, PyObject *object, const char *operation);

static inline FjRegistry *
fj_flatten_registry(FjFlattener *f)
{
    return f->structure->registry;
}

/* (P) Adds a node for None, or for an absent field or argument. */
static inline int
fj_flatten_nothing(FjFlattener *f, FjKindCode code)
{
    if (FJ_UNLIKELY(f->expected != NULL)) {
        return fj_expected_pass(f->expected, code);
    }
    return fj_structure_add(f->structure, code, NULL) == NULL ? -1 : 0;
}

/* (P) Appends a node whose children are walked next; fj_flatten_close ends it.  Its index, or
 * -1 with an error. */
static inline Py_ssize_t
fj_flatten_open(FjFlattener *f, FjKindCode code, Py_ssize_t children, PyTypeObject *type,
                PyObject *aux, int flags)
{
    if (FJ_UNLIKELY(f->expected != NULL)) {
        return fj_expected_open(f->expected, code, children, type, aux, flags);
    }
    Py_ssize_t index = fj_structure_append(f->structure, code, children, type, aux);
    if (index >= 0) {
        f->structure->nodes[index].flags |= (uint16_t)flags;
    }
    return index;
}

/* Closes the node that fj_flatten_open has opened.  Always 0. */
static inline int
fj_flatten_close(FjFlattener *f, Py_ssize_t index)
{
    if (FJ_LIKELY(f->expected == NULL)) {
        fj_structure_close(f->structure, index);
    }
    return 0;
}

/* Notes that matching the node that has been opened runs Python code, if `runs`. */
static inline void
fj_flatten_runs_python(FjFlattener *f, int runs)
{
    if (runs && f->expected == NULL) {
        f->structure->may_run_python = 1;
    }
}

#endif
