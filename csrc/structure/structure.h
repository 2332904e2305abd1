/* A Structure: a treedef together with its static leaves.
 *
 * Static values are the values in a pytree that are not arrays: leaves such as 0.1, and the
 * values of static fields.  So a Structure holds everything of a pytree but its arrays.
 * flatten.c splits a pytree into its arrays and its Structure, build.c makes a pytree from the
 * two, and a match (match.h) compares a pytree with a Structure and collects the arrays.
 *
 * Functions marked (P) may run Python code.
 *
 * An example
 * ==========
 * Net is a Module with the dynamic fields `layers`, `rates` and `shape` and the static fields
 * `sizes` and `name`; w0, w1, r and x are arrays.
 *
 *     def f(model, x, key=None): ...
 *
 *     net = Net(layers=[w0, w1], rates={"b": 0.1, "a": r}, shape=(2, 3),
 *               sizes=[8, 4], name="net")
 *     f(net, x)
 *
 * flatten.c pushes the arrays w0, w1, r, x and returns a Structure with these nodes.  `code`
 * to `aux` are in its array `nodes`, `type` to `hash` in its array `info`; empty places are 0
 * or NULL.  The codes are indented by depth; `hash` says what the hash is of.
 *
 *                                                                 subtree
 *  i code       arity flags             aux                  type    _end hash
 * -- ---------- ----- ----------------- -------------------- ---- ------- --------
 *  0 ARGUMENTS      3                   ("model", "x", "key")           15
 *  1  MODULE        5                   the NodeKind of Net  Net       13
 *  2   LIST         2 SHALLOW                                           5
 *  3    ARRAY       0                                                   4
 *  4    ARRAY       0                                                   5
 *  5   DICT         2 PLAIN_KEYS, SHALLOW ("a","b")           dict       8 aux
 *  6    ARRAY       0                                                   7
 *  7    STATIC      0 SELF_EQUAL        0.1                             8 aux
 *  8   TUPLE        2 SHALLOW           (2, 3)                         11
 *  9    STATIC      0 SELF_EQUAL        2                              10 aux
 * 10    STATIC      0 SELF_EQUAL        3                              11 aux
 * 11   STATIC       0 FIELD             [8, 4]                         12 snapshot
 * 12   STATIC       0 SELF_EQUAL, FIELD "net"                          13 aux
 * 13  ARRAY         0                                                  14
 * 14  MISSING       0                                                  15
 *
 *     count = 15, all_leaves = open_leaves = 4, static_leaves = NULL
 *
 * Order.  A node comes before its children, and the whole subtree of a child comes before the
 * next child.  Flattening, matching and building walk a tree in this order, so they go
 * through the nodes from start to end.  The children of a dict are in the order of its sorted
 * keys; the children of a Module are its dynamic fields and then its static fields.
 *
 * subtree_end.  The index of the first node after the subtree.  The subtree of node 2 consists
 * of the nodes 2 to 4, so the next child of node 1 is node 5.
 *
 * Leaves.  An ARRAY node is a leaf, and the n-th ARRAY node stands for the n-th array.  A
 * STATIC node holds its value in `aux`; it is a leaf or, with FIELD, the value of a static
 * field.  NONE and MISSING nodes have no children and are not leaves.
 *
 * Inert values and snapshots.  0.1 is SELF_EQUAL: it cannot change, and comparing it runs no
 * Python code (statics.h defines both words).  [8, 4] can be changed in place.  Therefore
 * fj_structure_hash, which fills in the column `hash`, takes its snapshot (snapshot.h), and
 * the hash is that of the snapshot.  Later comparisons are with the snapshot.  The keys of a
 * dict and the aux data of a CUSTOM node are treated in the same way.
 *
 * Constant tuples.  The tuple (2, 3) holds nothing but inert statics, so it can never change.
 * Its node keeps the tuple itself in `aux`: where a match meets this very object, it skips the
 * subtree, and build.c returns it instead of a new tuple.  None and other constant tuples may
 * be elements too.  `aux` is NULL for all other tuples.
 *
 * Every leaf an array
 * ===================
 * The functions on trees (flatten, partition, ...) use fj_flatten_leaves, for which every
 * leaf counts as an array.  The values of static fields are not leaves here either.  For `net`
 * it pushes the leaves w0, w1, r, 0.1, 2, 3; the nodes of the static fields are as above.
 *
 * LEAVES.  A tuple or list that has at least one child, and only leaves as children, is a
 * single node: its leaves have no nodes of their own.  So LIST and TUPLE above are one node
 * each, as is a list of 100,000 leaves.
 *
 * Open and static leaves.  A filter selects some of the leaves: one that selects arrays
 * returns w0, w1 and r.  The Structure then has the same nodes, and the leaves that were not
 * selected are its static leaves:
 *
 *     all_leaves = 6, open_leaves = 3, static_leaves = {NULL, NULL, NULL, 0.1, 2, 3}
 *
 * The leaves w0, w1 and r are open: their values are given when a tree is built.  The hash and
 * the equality of a Structure include its static leaves.
 *
 * Sharing
 * =======
 * A Module or Variable of Flax NNX is one object wherever it occurs in the arguments of a
 * call.  Types of which this is so are `by_identity` in the Registry.  Their instances are
 * numbered in the order of their nodes, which have FJ_NODE_IDENTITY; where an instance occurs
 * again, its node is a REF to this number, without children and without leaves.  A net that
 * uses one embedding `e`, which holds the array t, at both ends,
 *
 *     net = Net(embed=e, layer=l, unembed=e)
 *
 * is three objects, the numbers of Net, e and l:
 *
 *     code      aux       number
 *     ARGUMENTS
 *      MODULE   Net       0
 *       MODULE  Embed     1
 *        ARRAY
 *       MODULE  Layer     2
 *        ARRAY
 *       REF     1
 *
 * An object that contains itself is met again inside its own node.  Such a Structure can be
 * compared with others, but no tree can be built from it.
 */
#pragma once

#include "base/common.h"
#include "structure/registry.h"
#include "structure/snapshot.h"
#include "structure/statics.h"

/* The flags of a node. */
enum {
    FJ_NODE_SELF_EQUAL = 1, /* STATIC, CUSTOM: the value is immutable, see statics.h */
    FJ_NODE_PLAIN_KEYS = 2, /* DICT, ORDERED_DICT, DEFAULT_DICT: each key is exactly a str or
                             * an int, so comparing it with another such key runs no code */
    FJ_NODE_WRAPPER = 4,    /* MODULE: it counts as a wrapper (fj_fields_is_wrapper), whose
                             * attributes are children, after the fields */
    FJ_NODE_FIELD = 8,      /* STATIC: not a leaf, so it need not be hashable, see statics.h */
    FJ_NODE_LEAVES = 16,    /* TUPLE, LIST: all children are leaves, and have no nodes */
    FJ_NODE_SHALLOW = 32,   /* no child has child nodes */
    FJ_NODE_MAYBE_ARRAY = 64, /* STATIC: a leaf of an FJ_MAYBE_ARRAY type, which was no array
                               * when it was flattened, but may become one; never SELF_EQUAL */
    FJ_NODE_DEEP = 128,       /* its depth is a multiple of FJ_STRUCTURE_DEEP */
    FJ_NODE_ITSELF = 256, /* CUSTOM: it has no children, and its aux data is the node itself */
    FJ_NODE_IDENTITY = 512,  /* MODULE, OBJECT, CUSTOM: it has a number, see Sharing */
    FJ_NODE_ARGUMENT = 1024, /* STATIC: a static argument of a call, no leaf of one */
    FJ_NODE_NUMBERS = 2048,  /* ARRAY: types of `traced_in` (registry.h) match too */
};

/* A node, which is kept as small as possible: every call reads all nodes of a large tree.
 *
 *   code                    aux                            FjNodeInfo.type  .hash
 *   ----                    ---                            ---------------  -----
 *   ARRAY, NONE, MISSING    -                              -                -
 *   REF                     the number, an int             -                of the number
 *   STATIC                  the value                      -                of the value
 *   TUPLE                   the tuple if it is constant    -                -
 *   LIST                    -                              -                -
 *   DICT, ORDERED_DICT,
 *     DEFAULT_DICT          tuple of the keys              the class        of the keys
 *   NAMEDTUPLE, MODULE,
 *     OBJECT                its NodeKind                   the class        -
 *   CUSTOM                  (aux data, unflatten, keys)    the class        of the aux data
 *   ARGUMENTS               tuple of parameter names       -                -
 *
 * The keys of a CUSTOM node are a tuple with one key for each child, see fj_children_key.
 *
 * The children of a DEFAULT_DICT are its default_factory, as a STATIC with FJ_NODE_FIELD, and
 * then its values.  The children of a MODULE or OBJECT are its dynamic fields, then its static
 * fields and, with FJ_NODE_WRAPPER, the attributes of a wrapper, all of these as STATIC with
 * FJ_NODE_FIELD.  A field or attribute of a MODULE that is not set is a MISSING child.  A
 * field of an OBJECT that is held (FjNodeKind.dict_fields) is a DICT; if the field is static,
 * so are all values of the dict. */
typedef struct {
    uint8_t code; /* an FjKindCode */
    uint16_t flags;
    uint32_t arity; /* the number of children */
    PyObject *aux;  /* owned, or NULL */
} FjNode;

/* The part of a node that is seldom read. */
typedef struct {
    PyTypeObject *type; /* owned, or NULL */

    /* DICT with FJ_NODE_PLAIN_KEYS: a dict with the keys of the node, each mapped to None, or
     * to its value where all values are statics.  dicts.c makes new dicts by copying it.  Made
     * when it is first needed; owned, or NULL. */
    PyObject *model;

    /* Once the Structure has been hashed, the snapshot (snapshot.h) of the value that
     * fj_structure_value returns; NULL if that is inert. */
    FjSnapshot *snapshot;

    Py_hash_t hash;       /* see FjNode; 0 until the Structure has been hashed */
    uint32_t subtree_end; /* the index of the first node after the subtree; 0 until the node
                           * has been closed (fj_structure_close) */
} FjNodeInfo;

/* Whether the aux of a node is its NodeKind. */
static inline int
fj_node_has_kind(const FjNode *node)
{
    return fj_code_info[node->code].keys == FJ_KEYS_OF_KIND;
}

/* The kind of a NAMEDTUPLE, MODULE or OBJECT node; borrowed. */
static inline FjNodeKind *
fj_node_kind(const FjNode *node)
{
    return (FjNodeKind *)node->aux;
}

/* A walk that does not call Py_EnterRecursiveCall at each node calls it at the nodes of each
 * such depth.  A level takes at most 600 bytes of the stack, and Python 3.14 leaves 32 KiB
 * after the last look that raises no error, of which the frame of a call takes 8 KiB. */
#define FJ_STRUCTURE_DEEP 24

/* A Structure does not change after flatten.c has made it and, where there is a filter,
 * tree_functions.c has set its static leaves.  Only cached results are added to it:
 * `hashed`, `hash`, `may_run_python`, `paths`, FjNodeInfo.hash, .model and .snapshot. */
struct FjStructure {
    PyObject_HEAD FjRegistry *registry; /* owned */
    FjNode *nodes;
    FjNodeInfo *info; /* of the node with the same index; in the same allocation as `nodes` */
    uint32_t count;
    uint32_t capacity;
    Py_ssize_t all_leaves;  /* the number of ARRAY nodes and of leaves without a node */
    Py_ssize_t open_leaves; /* the number of those whose value is given to build a tree */
    /* An array of all_leaves items: the value (owned) of each static leaf, NULL for each open
     * leaf.  Or NULL if all leaves are open. */
    PyObject **static_leaves;
    PyObject *paths;       /* tuple of the paths of the open leaves, or NULL; owned */
    int is_tree_structure; /* made by fj_flatten_leaves, for which every leaf is an array */
    int may_run_python; /* there is a node whose match always runs Python code: a STATIC with
                         * MAYBE_ARRAY, a CUSTOM without ITSELF, an OBJECT whose fields are
                         * not plain (fields.h), an ORDERED_DICT, a dict without PLAIN_KEYS, or
                         * a value whose snapshot is not python_free */
    int is_asked; /* which leaves are traced is asked in each call, so nothing matches it:
                   * FJ_ASKED_ARGUMENT */
    uint32_t num_identities; /* the number of nodes with FJ_NODE_IDENTITY */
    uint32_t num_refs;       /* the number of REF nodes */
    uint32_t *identities;    /* the index of the node of each number; NULL if there is none */
    uint32_t open_nodes; /* the number of nodes that have been appended and not yet closed */
    int hashed;          /* fj_structure_hash has succeeded */
    Py_hash_t hash;
    PyObject *weakrefs;
};

/* The FjNodeInfo of a node. */
static inline const FjNodeInfo *
fj_structure_info(const FjStructure *structure, const FjNode *node)
{
    return &structure->info[node - structure->nodes];
}

/* Whether a node has a number: see Sharing. */
static inline int
fj_node_has_number(const FjNode *node)
{
    return node->code > FJ_NONE && (node->flags & FJ_NODE_IDENTITY);
}

/* Whether a leaf is of a type that an ARRAY node takes too: `traced_in` (registry.h). */
static inline int
fj_structure_takes_number(const FjStructure *structure, const FjNode *node, PyObject *object)
{
    return (node->flags & FJ_NODE_NUMBERS) &&
           fj_registry_names(structure->registry->traced_in, Py_TYPE(object));
}

/* The part of a node that is compared by the rule for static values: the value of a STATIC,
 * the keys of a dict, the aux data of a CUSTOM node.  Borrowed; NULL for other nodes. */
static inline PyObject *
fj_structure_value(const FjNode *node)
{
    FjNodeValue value = fj_code_info[node->code].value;
    return value == FJ_NO_VALUE       ? NULL
           : value == FJ_VALUE_IS_AUX ? node->aux
                                      : PyTuple_GET_ITEM(node->aux, 0);
}

/* The number of a REF node. */
static inline uint32_t
fj_node_number(const FjNode *node)
{
    return (uint32_t)PyLong_AsUnsignedLong(
        node->aux); /* which add_ref in flatten.c has made */
}

/* The first node after the subtree of `node`. */
static inline const FjNode *
fj_structure_skip(const FjStructure *structure, const FjNode *node)
{
    return structure->nodes + fj_structure_info(structure, node)->subtree_end;
}

/* The value of a leaf that is not open, borrowed; NULL for an open leaf. */
static inline PyObject *
fj_structure_static_leaf(const FjStructure *structure, Py_ssize_t leaf)
{
    return structure->static_leaves == NULL ? NULL : structure->static_leaves[leaf];
}

/* The number of leaves of this node alone: 1 for an ARRAY, and with FJ_NODE_LEAVES the leaves
 * that have no nodes. */
static inline Py_ssize_t
fj_node_leaves(const FjNode *node)
{
    return node->code == FJ_ARRAY         ? 1
           : node->flags & FJ_NODE_LEAVES ? (Py_ssize_t)node->arity
                                          : 0;
}

/* A new Structure without nodes, to which flatten.c appends them.  It is hidden (fj_hide)
 * until it has them all: its hash, which it keeps, would be that of a part. */
FjStructure *fj_structure_new(FjRegistry *registry);

/* Doubles the capacity for nodes.  0, or -1 with MemoryError and the Structure unchanged. */
int fj_structure_grow(FjStructure *structure);

/* Appends a node without children, with a new reference to `aux`, which may be NULL.  Returns
 * the node, or NULL with an error. */
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

/* Appends a node whose children are appended after it, with new references to `type` and
 * `aux`, which may be NULL.  Returns the index of the node, or -1 with an error. */
Py_ssize_t fj_structure_append(FjStructure *structure, FjKindCode code, Py_ssize_t arity,
                               PyTypeObject *type, PyObject *aux);

/* Closes the node at `index`, after its whole subtree has been appended. */
void fj_structure_close(FjStructure *structure, Py_ssize_t index);

/* (P) Hashes the Structure, which takes snapshots of its static values.  0, or -1 with an
 * error of a static value's __hash__, to which the path has been added
 * (fj_structure_add_error_context). Does nothing if the Structure has been hashed. */
int fj_structure_hash(FjStructure *structure);

/* (P) Whether two Structures are equal.  1, 0, or -1 with an error of a static value's __eq__,
 * to which the path has been added. */
int fj_structure_equal(FjStructure *a, FjStructure *b);

/* (P) Whether the node `i` of one Structure and the node `j` of another, each without its
 * children, are equal: two Structures are if all their nodes are.  The values of nodes are
 * compared as they were when the Structure was hashed, and must still be equal.  1, 0, or -1
 * with an error. */
int fj_structure_equal_nodes(const FjStructure *a, uint32_t i, const FjStructure *b,
                             uint32_t j);

/* (P) Whether `value` equals the node's value as it was when the Structure was hashed, which
 * it must have been, and the node's value, which the next trace will use, has not changed
 * since.  1, 0, or -1 with an error. */
int fj_structure_has(const FjStructure *structure, const FjNode *node, PyObject *value);

/* The same for a node whose value is not inert, as far as it is seen without Python code: 1, 0
 * or FJ_SNAPSHOT_UNSEEN. */
int fj_structure_match(const FjStructure *structure, const FjNode *node, PyObject *value);

/* (P) Sets the attribute `__filterjit_error_context__` of the exception that is set to
 * (operation, path of the node, its aux or None), from which _base/_errors.py and
 * _base/_words.py make a text. `operation` is "hash", "compare", "sort" or "flatten". */
void fj_structure_add_error_context(const FjStructure *structure, uint32_t index,
                                    const char *operation);

/* (P) The same for a leaf: `operation` is "hash", "compare" or "ask". */
void fj_structure_add_leaf_context(const FjStructure *structure, Py_ssize_t leaf,
                                   const char *operation);

/* ---- children and paths ---- */

/* The children of a node, one after the other, with the key of each:
 *
 *     for (FjChildren c = fj_children_of(structure, index); fj_children_has(&c);
 *          fj_children_next(&c)) {
 *         ... structure->nodes[c.at], fj_children_key(&c) ...
 *     }
 */
typedef struct {
    const FjStructure *structure;
    uint32_t parent; /* the index of the node */
    uint32_t number; /* of the child, from 0 */
    uint32_t at;     /* the index of the child's node, if it has one (fj_children_is_leaf) */
} FjChildren;

/* The first child of the node at `parent`. */
static inline FjChildren
fj_children_of(const FjStructure *structure, uint32_t parent)
{
    return (FjChildren){.structure = structure, .parent = parent, .at = parent + 1};
}

/* Whether there is a child: 0 after the last one. */
static inline int
fj_children_has(const FjChildren *c)
{
    return c->number < c->structure->nodes[c->parent].arity;
}

/* Whether the child is a leaf without a node of its own: its parent has FJ_NODE_LEAVES. */
static inline int
fj_children_is_leaf(const FjChildren *c)
{
    return (c->structure->nodes[c->parent].flags & FJ_NODE_LEAVES) != 0;
}

/* Advances to the next child.  The node of this one must be closed. */
static inline void
fj_children_next(FjChildren *c)
{
    c->number++;
    if (!fj_children_is_leaf(c)) {
        c->at = c->structure->info[c->at].subtree_end;
    }
}

/* The key of the child: a str for a name (a parameter or a field), (key,) for an item,
 * None where a path leaves the step out, as from an object to a dict field.  A new reference,
 * or NULL with an error. */
PyObject *fj_children_key(const FjChildren *c);

/* The path to a node: a new list of the keys from the root, or NULL with an error.  The
 * Structure may still have nodes that are not closed. */
PyObject *fj_path_of_node(const FjStructure *structure, uint32_t index);

/* The path to a leaf, which is counted from 0 among all leaves. */
PyObject *fj_path_of_leaf(const FjStructure *structure, Py_ssize_t leaf);
