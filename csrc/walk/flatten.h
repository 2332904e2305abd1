/* Flattening a tree into its arrays, in order, and its Structure. */
#pragma once

#include "base/address_map.h"
#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"
#include "walk/expected.h"

/* These functions push the arrays and return a new Structure, or NULL with an error; `arrays`
 * may then hold some arrays, which the caller clears.  They may run Python code: see
 * flatten.c. */

/* Flattens one tree. */
FjStructure *fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays);

#define FJ_STATIC_ARGUMENT 2 /* the argument of a parameter is a static, and is not walked */
#define FJ_TRACED_ARGUMENT 4 /* leaves in it are traced as the Registry's `traced_in` says */
#define FJ_CHOSEN_ARGUMENT 8 /* the same, of the leaves that an FjChoose takes */
#define FJ_ASKED_ARGUMENT                                                                     \
    16 /* with CHOSEN: what it takes may depend on more than the structure */

/* (P) Which leaves of the argument of parameter `i` are chosen: a new bytes object with a byte
 * for each leaf, or NULL with an error. */
typedef PyObject *(*FjChoose)(void *context, Py_ssize_t i, PyObject *argument);

/* Flattens the arguments of a call, one for each parameter in `names`; NULL stands for an
 * argument that is not given.  `flags`, which may be NULL, has a byte for each parameter: see
 * above.  The caller holds the arguments.  `objects`, which is empty, receives the numbered
 * objects in their order (Sharing in structure.h).  `choose`, which gets `context`, may be
 * NULL if no flag is FJ_CHOSEN_ARGUMENT. */
FjStructure *fj_flatten_arguments(FjRegistry *registry, PyObject *names, const char *flags,
                                  PyObject *const *arguments, FjChoose choose, void *context,
                                  FjLeafBuf *arrays, FjLeafBuf *objects);

/* Flattens one tree as jax.tree_util does: every leaf counts as an array; static fields remain
 * static.  An object is also a leaf if `is_leaf`, a callable or NULL, returns true for it, and
 * None is a leaf if `none_is_leaf` is set.  The Structure is hidden (fj_hide), since the
 * caller may still make leaves static; it is shown before Python gets it. */
FjStructure *fj_flatten_leaves(FjRegistry *registry, PyObject *tree, PyObject *is_leaf,
                               int none_is_leaf, FjLeafBuf *leaves);

/* Flattens a tree up to the leaves of a Structure that fj_flatten_leaves returned and that is
 * a prefix of it: pushes the subtree of `tree` that is in the place of each leaf.  0, or -1
 * with an error: a ValueError with the path if the Structure is no prefix of the tree, whose
 * message calls the tree `name` and the Structure `model`. */
int fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name,
                     const char *model, FjLeafBuf *leaves);

/* (P) Walks trees as fj_flatten_arguments does, and compares them with the nodes of a
 * Structure from `first` on; pushes their arrays and numbered objects.  `trees` are NULL where
 * there is none.  1, 0 if they differ, or -1 with an error; the buffers may then hold some.
 * In compare.c. */
int fj_flatten_compare(FjStructure *structure, const FjNode *first, PyObject *const *trees,
                       Py_ssize_t count, FjLeafBuf *arrays, FjLeafBuf *objects);

/* ---- for flatten.c and the readers (reader.h): the state of the walk ---- */

/* Functions return 0, or -1 with an error, except where they say something else. */

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
