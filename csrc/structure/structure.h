/* A Structure: the shape of a tree and its static leaves, as one flat program.
 *
 * The nodes stand in an array in the order in which a walk meets them, parent before child,
 * so matching and building go straight through memory.  A Structure never changes once
 * flatten.c has sealed it.
 *
 * Functions marked (P) may run Python code.
 */
#ifndef FJ_STRUCTURE_H
#define FJ_STRUCTURE_H

#include "base/common.h"
#include "structure/registry.h"

enum {
    FJ_NODE_INERT = 1,    /* static: inert, see statics.h */
    FJ_NODE_STR_KEYS = 2, /* dict: each key is exactly a str */
    FJ_NODE_WRAPPER = 4,  /* module: the attributes of what it wraps belong to it */
    FJ_NODE_FIELD = 8,    /* static: not a leaf, so it may have no hash, see statics.h */
    FJ_NODE_LEAVES =
        16, /* tuple, list: every child is an array leaf without a node of its own */
    FJ_NODE_SHALLOW = 32 /* no child has children */
};

/* One node, as small as it goes: a large tree's nodes are read from end to end on each call.
 * `aux` is owned.
 *
 *   code             aux                          FjNodeInfo.type    FjNodeInfo.hash
 *   array, missing   -                            -                  -
 *   static           the value                    -                  of the value
 *   tuple            see below, or NULL           -                  -
 *   list             -                            -                  -
 *   dict family      tuple of the keys            the class          -
 *   namedtuple       its kind                     the class          -
 *   module, ...      its kind                     the class          -
 *   generic          (aux data, unflatten)        the class          of the aux data
 *   slots            tuple of parameter names     -                  -
 *
 * The children of a default_dict are its factory, as a static, and then its values; those of
 * a module are its dynamic fields, its static fields as statics and, with FJ_NODE_WRAPPER,
 * the wrapper's attributes as statics.
 *
 * Where every leaf counts as an array (fj_flatten_leaves), a tuple or list of nothing but
 * leaves says so by FJ_NODE_LEAVES: 100,000 of them are one node.
 *
 * A tuple that holds nothing but inert statics and other such tuples can never change, so its
 * node keeps the very tuple: where it is met again, nothing in it needs to be looked at. */
typedef struct {
    uint8_t code; /* an FjKindCode */
    uint8_t flags;
    uint32_t arity;
    PyObject *aux;
} FjNode;

/* What is seldom asked of a node.  `type` and `kept` are owned. */
typedef struct {
    PyTypeObject *type;
    PyObject *kept; /* dict with FJ_NODE_STR_KEYS, once it has been built: a dict of these
                     * keys to make copies of.  Any other node of a hashed Structure: what its
                     * static, keys or aux data were then, frozen (statics.h), where that is
                     * not the thing itself.  Else NULL */
    Py_hash_t hash;
    uint32_t subtree_end; /* index of the node after this subtree */
} FjNodeInfo;

static inline FjNodeKind *
fj_node_kind(const FjNode *node)
{
    return (FjNodeKind *)node->aux;
}

struct FjStructure {
    PyObject_HEAD FjRegistry *registry; /* owned */
    FjNode *nodes;
    FjNodeInfo *info; /* by the same index; part of the block that `nodes` is */
    uint32_t count;
    uint32_t capacity;
    Py_ssize_t all_leaves; /* how many array leaves */
    Py_ssize_t
        open_leaves; /* how many of them are given when a tree is built: all, unless... */
    PyObject **static_leaves; /* ... this is not NULL: what stands in each leaf, NULL where it
                               * is given; owned */
    PyObject
        *paths;     /* tuple of the paths of the leaves that are given, or NULL: see paths.c */
    int every_leaf; /* made by fj_flatten_leaves */
    int may_run_python; /* matching may run Python code: a static that is not inert, a node
                         * that comes apart in Python */
    int hashed;
    Py_hash_t hash;
    PyObject *weakrefs;
};

/* What is seldom asked of one of its nodes. */
static inline const FjNodeInfo *
fj_structure_info(const FjStructure *structure, const FjNode *node)
{
    return &structure->info[node - structure->nodes];
}

/* The node after all that belongs to this one. */
static inline const FjNode *
fj_structure_skip(const FjStructure *structure, const FjNode *node)
{
    return structure->nodes + fj_structure_info(structure, node)->subtree_end;
}

/* How many leaves a node is, or holds without a node of their own. */
static inline Py_ssize_t
fj_node_leaves(const FjNode *node)
{
    return node->code == FJ_ARRAY         ? 1
           : node->flags & FJ_NODE_LEAVES ? (Py_ssize_t)node->arity
                                          : 0;
}

/* An empty Structure to be filled by flatten.c. */
FjStructure *fj_structure_new(FjRegistry *registry);

/* Doubles the room for nodes.  0, or -1 with MemoryError and the Structure as it was. */
int fj_structure_grow(FjStructure *structure);

/* Appends a node without children; a new reference to `aux`, which may be NULL, is taken. NULL
 * with an error. */
static inline FjNode *
fj_structure_add(FjStructure *structure, FjKindCode code, PyObject *aux)
{
    if (FJ_UNLIKELY(structure->count == structure->capacity) &&
        fj_structure_grow(structure) < 0) {
        return NULL;
    }
    uint32_t index = structure->count++;
    FjNode *node = &structure->nodes[index];
    *node = (FjNode){.code = (uint8_t)code, .aux = Py_XNewRef(aux)};
    structure->info[index] = (FjNodeInfo){.subtree_end = index + 1};
    return node;
}

/* Appends a node whose children are to be appended next, `children` of them; `type` and `aux`
 * may be NULL, new references are taken.  The index of the node, or -1 with an error. */
Py_ssize_t fj_structure_append(FjStructure *structure, FjKindCode code, Py_ssize_t children,
                               PyTypeObject *type, PyObject *aux);

/* Says that all that belongs to the node at `index` has been appended. */
void fj_structure_close(FjStructure *structure, Py_ssize_t index);

/* (P) Hashes the statics and the whole.  0, or -1 with the error of a static's __hash__, to
 * which the path has been added (fj_structure_add_error_context).  Doing it again is free. */
int fj_structure_hash(FjStructure *structure);

/* (P) 1, 0, or -1 with an error of a static's __eq__ that names the path. */
int fj_structure_equal(FjStructure *a, FjStructure *b);

/* The static, keys or aux data of a node, borrowed; NULL for a node without. */
PyObject *fj_structure_value(const FjNode *node);

/* (P) Whether `value` is what that of a node was when the Structure was hashed, and the node's
 * own has not changed since: it goes into the next trace.  1, 0 or -1 with an error.  `frozen`
 * is what `value` is now. */
int fj_structure_has(const FjStructure *structure, const FjNode *node, PyObject *value,
                     PyObject *frozen);

/* (P) The key under which child `child` hangs below the node at `index`: str for a name,
 * (key,) for an item.  A new reference. */
PyObject *fj_structure_key(const FjStructure *structure, uint32_t index, uint32_t child);

/* (P) The path to a node, as a new list of keys from the root: str for a name (a parameter
 * or a field), (key,) for an item.  Works on a Structure that is still being filled. */
PyObject *fj_structure_path(FjStructure *structure, uint32_t index);

/* (P) The same to the array leaf of this number. */
PyObject *fj_structure_leaf_path(FjStructure *structure, Py_ssize_t leaf);

/* (P) A path as people write it, "`model.layers[2].activation`" or "the root": a new str. */
PyObject *fj_structure_write_path(PyObject *path);

/* (P) Adds the path of a node to the exception that is set, as attribute
 * `__filterjit_error_context__`: the Python side makes the message. */
void fj_structure_add_error_context(FjStructure *structure, uint32_t index,
                                    const char *operation);

/* (P) Where the exception that is set has been given a path, makes a note of it instead: for
 * what is not on the road of a jitted call. */
void fj_structure_note_error_context(void);

/* (P) Adds a note "(what `path`)" to the exception that is set: the path of a leaf. */
void fj_structure_note_leaf(const char *what, FjStructure *structure, Py_ssize_t leaf);

#endif
