/* Flattens a tree into its arrays, in order, and its Structure. */
#pragma once

#include "base/address_map.h"
#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"
#include "walk/expected.h"

/* These functions push the arrays and return a new Structure.  After an error, the caller
 * clears `arrays`.  They can run Python code: see flatten.c. */

FjStructure *fj_flatten_tree(FjRegistry *registry, PyObject *tree, FjLeafBuf *arrays);

#define FJ_STATIC_ARGUMENT 2 /* a whole static, which is not walked */
#define FJ_TRACED_ARGUMENT 4 /* traces the leaves that the Registry's `traced_in` names */
#define FJ_CHOSEN_ARGUMENT 8 /* the same, for the leaves that an FjChoose selects */
#define FJ_ASKED_ARGUMENT                                                                     \
    16 /* with CHOSEN: the choice can depend on more than the structure */

/* (P) Selects leaves of parameter `i`.  Returns a bytes object with a byte per leaf. */
typedef PyObject *(*FjChoose)(void *context, Py_ssize_t i, PyObject *argument);

/* Flattens the arguments of a call, one per parameter in `names`: an absent argument is NULL.
 * `flags` has a byte per parameter (see above), or is NULL.  The caller holds the arguments.
 * `objects`, initially empty, receives the numbered objects in order (Sharing in structure.h).
 * `choose` is called with `context` for FJ_CHOSEN_ARGUMENT. */
FjStructure *fj_flatten_arguments(FjRegistry *registry, PyObject *names, const char *flags,
                                  PyObject *const *arguments, FjChoose choose, void *context,
                                  FjLeafBuf *arrays, FjLeafBuf *objects);

/* Flattens a tree as jax.tree_util does: every leaf counts as an array, and static fields stay
 * static.  An object is also a leaf if `is_leaf`, a callable or NULL, returns true for it;
 * None is a leaf if `none_is_leaf`.  The Structure is hidden (fj_hide) because the caller can
 * still make leaves static.  The caller shows it before Python gets it. */
FjStructure *fj_flatten_leaves(FjRegistry *registry, PyObject *tree, PyObject *is_leaf,
                               int none_is_leaf, FjLeafBuf *leaves);

/* Flattens a tree up to the leaves of a prefix, a Structure from fj_flatten_leaves: pushes the
 * subtree of `tree` at each leaf.  If the Structure isn't a prefix of the tree, raises a
 * ValueError with the path that calls the tree `name` and the Structure `model`. */
int fj_flatten_up_to(FjStructure *structure, PyObject *tree, const char *name,
                     const char *model, FjLeafBuf *leaves);

/* (P) Walks trees as fj_flatten_arguments does, but compares them with the nodes of a
 * Structure from `first` on.  Pushes their arrays and numbered objects.  An absent tree is
 * NULL.  1, 0 if they differ, or -1 with an error; the buffers can then be partly filled. */
int fj_flatten_compare(FjStructure *structure, const FjNode *first, PyObject *const *trees,
                       Py_ssize_t count, FjLeafBuf *arrays, FjLeafBuf *objects);

/* ---- for flatten.c and the readers (reader.h): the state of the walk ---- */

typedef struct FjFlattener FjFlattener;
struct FjFlattener {
    FjStructure *structure;
    FjLeafBuf *arrays;
#if FJ_FREE_THREADED
    /* (P) Exact comparisons only: compares an object held by the caller with the expected
     * node.  1 if they are equal, 0 if flatten.c must compare them, or -1. */
    int (*compare)(FjFlattener *f, PyObject *object);
#endif
    int is_tree_structure; /* from fj_flatten_leaves: every leaf counts as an array */
    int none_is_leaf;
    /* A type with only arrays, or only statics, as its instances in this argument; or NULL.
     * An instance in the buffer or the Structure keeps the type alive. */
    const PyTypeObject *array_type, *static_type;
    int array_flags;    /* of this argument's array nodes: FJ_NODE_NUMBERS or 0 */
    const char *choice; /* an FjChoose's answer for this argument */
    Py_ssize_t next_choice, num_choices;
    int may_stop;         /* with an `is_leaf` or an `expected` */
    PyObject *is_leaf;    /* borrowed, or NULL */
    FjExpected *expected; /* compares the tree, and appends no nodes; or NULL */
    /* For call arguments: the numbered objects (Sharing in structure.h), and their numbers. */
    FjLeafBuf *objects;   /* or NULL */
    FjAddressMap numbers; /* empty with an `expected` */
};

/* (P) Walks an object that the caller holds: adds its nodes and pushes its arrays. */
int fj_flatten_object(FjFlattener *f, PyObject *object);

/* (P) Walks the items of a tuple or list that the caller holds. */
int fj_flatten_items(FjFlattener *f, PyObject *items, Py_ssize_t size);

/* (P) Walks a dict.  With `is_static`, its values are static fields. */
int fj_flatten_dict(FjFlattener *f, FjKindCode code, PyObject *dict, int is_static);

#if FJ_FREE_THREADED
/* (P) Compares a node's children with the items of a list or, with `names`, the values of a
 * dict, which must have `size` items (a wrapper's must not).  1, 0 if they differ, or -1. */
int fj_compare_children(FjFlattener *f, const FjNode *node, PyObject *container,
                        PyObject *names, Py_ssize_t size);

/* (P) Compares held objects with nodes.  Moves arrays to the buffer, which leaves NULL.  1 or
 * -1. */
int fj_compare_held(FjFlattener *f, PyObject **items, Py_ssize_t count);

/* (P) Compares the next child, held by the caller, with its node.  0 or -1. */
int fj_compare_child(FjFlattener *f, PyObject *object);
#endif

/* (P) For the value of a static field. */
int fj_flatten_field(FjFlattener *f, PyObject *value);

/* Raises a RuntimeError: other code changed the object during the walk.  In an exact
 * comparison, sets `differs` instead.  Always -1. */
int fj_flatten_changed(FjFlattener *f, PyObject *object);

/* (P) Adds the path of `object`, for which no node exists yet, to the current exception. */
void fj_flatten_add_context(FjFlattener *f, PyObject *object, const char *operation);

static inline FjRegistry *
fj_flatten_registry(FjFlattener *f)
{
    return f->structure->registry;
}

/* (P) For None, or an absent field or argument. */
static inline int
fj_flatten_nothing(FjFlattener *f, FjKindCode code)
{
    if (FJ_UNLIKELY(f->expected != NULL)) {
        return fj_expected_pass(f->expected, code);
    }
    return fj_structure_add(f->structure, code, NULL) == NULL ? -1 : 0;
}

/* (P) Appends a node, before its children and fj_flatten_close.  Returns its index, or -1. */
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

/* Closes a node from fj_flatten_open.  Always 0. */
static inline int
fj_flatten_close(FjFlattener *f, Py_ssize_t index)
{
    if (FJ_LIKELY(f->expected == NULL)) {
        fj_structure_close(f->structure, index);
    }
    return 0;
}

/* With `runs`, records that matching the open node runs Python code. */
static inline void
fj_flatten_runs_python(FjFlattener *f, int runs)
{
    if (runs && f->expected == NULL) {
        f->structure->may_run_python = 1;
    }
}
