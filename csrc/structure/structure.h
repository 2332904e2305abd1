/* A Structure: a treedef together with the static leaves.
 *
 * Static values are the values in a pytree that aren't arrays: leaves such as 0.1, and the
 * values of static fields.  So a Structure holds a whole pytree except its arrays.  flatten.c
 * splits a pytree into arrays and Structure, build.c joins them, and a match (match.h)
 * compares a pytree with a Structure and collects the arrays.
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
 * flatten.c pushes the arrays w0, w1, r, x and returns a Structure with the nodes below,
 * indented by depth.  `code` to `aux` are in its array `nodes`, `type` to `hash` in its array
 * `info`.  Empty cells are 0 or NULL; `hash` names the hashed value.
 *
 *                                                                    subtree
 *     i code       arity flags             aux                  type    _end hash
 *    -- ---------- ----- ----------------- -------------------- ---- ------- --------
 *     0 ARGUMENTS      3                   ("model", "x", "key")           15
 *     1  MODULE        5                   the NodeKind of Net  Net       13
 *     2   LIST         2 SHALLOW                                           5
 *     3    ARRAY       0                                                   4
 *     4    ARRAY       0                                                   5
 *     5   DICT         2 PLAIN_KEYS, SHALLOW ("a","b")           dict       8 aux
 *     6    ARRAY       0                                                   7
 *     7    STATIC      0 FIXED             0.1                             8 aux
 *     8   TUPLE        2 SHALLOW           (2, 3)                         11
 *     9    STATIC      0 FIXED             2                              10 aux
 *    10    STATIC      0 FIXED             3                              11 aux
 *    11   STATIC       0 FIELD             [8, 4]                         12 snapshot
 *    12   STATIC       0 FIXED, FIELD      "net"                          13 aux
 *    13  ARRAY         0                                                  14
 *    14  MISSING       0                                                  15
 *
 *     count = 15, open_leaves = 4
 *
 * Order.  Each node is followed by the whole subtree of its first child, then of its second,
 * and so on.  All walks go in this order, from the first node to the last.  The children of a
 * dict are sorted by key; those of a Module are its dynamic fields, then its static fields.
 *
 * subtree_end.  The index of the first node after the subtree.  The subtree of node 2 is the
 * nodes 2 to 4, and the next child of node 1 is node 5.
 *
 * Leaves.  The n-th ARRAY node stands for the n-th array.  A STATIC node holds its value in
 * `aux`: a leaf or, with FIELD, the value of a static field.  NONE and MISSING aren't leaves.
 *
 * Fixed values and snapshots.  0.1 is FIXED (statics.h).  [8, 4] can change in place.  So
 * fj_structure_hash takes a snapshot of it (snapshot.h), to hash and to compare later.  The
 * keys of a dict and the aux data of a CUSTOM node are treated alike.
 *
 * Fixed tuples.  The tuple (2, 3) holds only None, fixed statics or fixed tuples, so it can't
 * change.  Its node keeps it in `aux`: a match that meets this very object skips the subtree,
 * and build.c returns it.  For all other tuples `aux` is NULL.
 *
 * Tree functions
 * ==============
 * The functions on trees (flatten, partition, ...) use fj_flatten_leaves, which makes each
 * leaf an ARRAY node: for `net`, the leaves w0, w1, r, 0.1, 2, 3.  A filter selects leaves,
 * such as the arrays w0, w1 and r.  These are *open*: building a tree needs values for them.
 * tree_functions.c turns the nodes of the others into STATIC nodes, as in a call.
 *
 * Sharing
 * =======
 * A Flax NNX Module or Variable is one object wherever it occurs in the arguments of a call.
 * The Registry lists these types in `by_identity`.  Their instances are numbered in node
 * order, and their nodes have FJ_NODE_NUMBERED.  Each further occurrence is a REF to this
 * number, without children or leaves.  A net that uses one embedding `e`, with the array t, at
 * both ends,
 *
 *     net = Net(embed=e, layer=l, unembed=e)
 *
 * consists of three objects, Net, e and l:
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
 * If an object contains itself, its REF is inside its own node.  Such a Structure can be
 * compared, but no tree can be built from it. */
#pragma once

#include "base/common.h"
#include "structure/registry.h"
#include "structure/snapshot.h"
#include "structure/statics.h"

enum {
    FJ_NODE_FIXED = 1,      /* STATIC, CUSTOM: a fixed value (statics.h) */
    FJ_NODE_PLAIN_KEYS = 2, /* DICT, ORDERED_DICT, DEFAULT_DICT: each key is exactly a str or
                             * an int, so comparing two keys runs no code */
    FJ_NODE_WRAPPER =
        4,             /* MODULE: a wrapper; extra attributes are children, after the fields */
    FJ_NODE_FIELD = 8, /* STATIC: not a leaf, so it need not be hashable (statics.h) */
    FJ_NODE_SHALLOW = 32,       /* no child has child nodes */
    FJ_NODE_MAYBE_ARRAY = 64,   /* STATIC: a leaf of an FJ_MAYBE_ARRAY type, not an array when
                                 * flattened, but it can become one; never FIXED */
    FJ_NODE_CHECKS_STACK = 128, /* the depth is a multiple of FJ_STRUCTURE_STACK_STEP */
    FJ_NODE_IS_ITS_AUX = 256,   /* CUSTOM: no children, and the object is its own aux data */
    FJ_NODE_NUMBERED = 512,     /* MODULE, OBJECT, CUSTOM: numbered, see Sharing */
    FJ_NODE_ARGUMENT = 1024,    /* STATIC: a whole static argument, not a leaf of one */
    FJ_NODE_NUMBERS = 2048,     /* ARRAY: types in `traced_in` (registry.h) match too */
};

/* Nodes are small because a call reads all nodes of a large tree.
 *
 *   code                    aux                            FjNodeInfo.type  .hash
 *   ----                    ---                            ---------------  -----
 *   ARRAY, NONE, MISSING    -                              -                -
 *   REF                     the number, an int             -                of the number
 *   STATIC                  the value                      -                of the value
 *   TUPLE                   the tuple if it is fixed       -                -
 *   LIST                    -                              -                -
 *   DICT, ORDERED_DICT,
 *     DEFAULT_DICT          tuple of the keys              the class        of the keys
 *   NAMEDTUPLE, MODULE,
 *     OBJECT                its NodeKind                   the class        -
 *   CUSTOM                  (aux data, unflatten, keys)    the class        of the aux data
 *   ARGUMENTS               tuple of parameter names       -                -
 *
 * The keys of a CUSTOM node are a tuple with one key per child (fj_children_key).
 *
 * The children of a DEFAULT_DICT are its default_factory, as a STATIC with FJ_NODE_FIELD, then
 * its values.  The children of a MODULE or OBJECT are its dynamic fields, its static fields
 * and, with FJ_NODE_WRAPPER, the wrapper's attributes; all but the dynamic fields are STATIC
 * with FJ_NODE_FIELD.  An unset field or attribute of a MODULE is a MISSING child.  A dict
 * field of an OBJECT (FjNodeKind.dict_fields) is a DICT, with static values if it is static.
 */
typedef struct {
    uint8_t code; /* an FjKindCode */
    uint16_t flags;
    uint32_t arity; /* number of children */
    PyObject *aux;  /* owned, or NULL */
} FjNode;

/* The rarely read part of a node. */
typedef struct {
    PyTypeObject *type; /* owned, or NULL */

    /* DICT with FJ_NODE_PLAIN_KEYS: a dict that kind_dicts.c copies to build a dict.  Maps the
     * keys to None or, if all values are static, to the values.  Owned, or NULL. */
    PyObject *model;

    /* After fj_structure_hash, the snapshot of fj_structure_value.  NULL if that is inert. */
    FjSnapshot *snapshot;

    Py_hash_t hash;       /* see FjNode; 0 before fj_structure_hash */
    uint32_t subtree_end; /* the first node after the subtree; 0 until fj_structure_close */
} FjNodeInfo;

/* True if the node's aux is its NodeKind. */
static inline int
fj_node_has_kind(const FjNode *node)
{
    return fj_code_info[node->code].keys == FJ_KEYS_OF_KIND;
}

/* For NAMEDTUPLE, MODULE and OBJECT.  Borrowed. */
static inline FjNodeKind *
fj_node_kind(const FjNode *node)
{
    return (FjNodeKind *)node->aux;
}

/* Walks that don't call Py_EnterRecursiveCall at each node call it at multiples of this depth.
 * A level takes at most 600 bytes of stack.  After the last check that passes, Python 3.14
 * leaves 32 KiB, and the frame of a call takes 8 KiB of them. */
#define FJ_STRUCTURE_STACK_STEP 24

/* A Structure is immutable after flatten.c has built it and, with a filter, tree_functions.c
 * has made its static leaves.  Only cached results are added: `hashed`, `hash`,
 * `may_run_python`, `paths`, FjNodeInfo.hash, .model and .snapshot. */
struct FjStructure {
    PyObject_HEAD FjRegistry *registry; /* owned */
    FjNode *nodes;
    FjNodeInfo *info; /* parallel to `nodes`, in the same allocation */
    uint32_t count;
    uint32_t capacity;
    Py_ssize_t open_leaves; /* ARRAY nodes: leaves that need a value to build a tree */
    PyObject *paths;        /* tuple of the paths of the open leaves (owned), or NULL */
    int is_tree_structure;  /* from fj_flatten_leaves: every leaf is an array */
    int may_run_python;     /* matching always runs Python code: for STATIC with MAYBE_ARRAY,
                             * CUSTOM without IS_ITS_AUX, ORDERED_DICT, a dict without PLAIN_KEYS,
                             * OBJECT without plain fields, or a snapshot that may */
    uint32_t num_numbered;  /* nodes with FJ_NODE_NUMBERED */
    uint32_t num_refs;      /* REF nodes */
    uint32_t *identities;   /* the node index of each number, or NULL */
    uint32_t open_nodes;    /* appended and not yet closed */
    int hashed;             /* fj_structure_hash has succeeded */
    Py_hash_t hash;
    PyObject *weakrefs;
};

static inline const FjNodeInfo *
fj_structure_info(const FjStructure *structure, const FjNode *node)
{
    return &structure->info[node - structure->nodes];
}

/* Returns the type of a container's objects (borrowed). */
static inline const PyTypeObject *
fj_structure_type(const FjStructure *structure, const FjNode *node)
{
    return node->code == FJ_TUPLE  ? &PyTuple_Type
           : node->code == FJ_LIST ? &PyList_Type
                                   : fj_structure_info(structure, node)->type;
}

/* True if a node is numbered: see Sharing. */
static inline int
fj_node_has_number(const FjNode *node)
{
    return node->code > FJ_NONE && (node->flags & FJ_NODE_NUMBERED);
}

/* True if an ARRAY node also takes this leaf's type: `traced_in` (registry.h). */
static inline int
fj_structure_takes_number(const FjStructure *structure, const FjNode *node, PyObject *object)
{
    return (node->flags & FJ_NODE_NUMBERS) &&
           fj_registry_names(structure->registry->traced_in, Py_TYPE(object));
}

/* Returns the part of a node that the rule for static values compares (borrowed): the value of
 * a STATIC, the keys of a dict, the aux data of a CUSTOM node.  NULL for other nodes. */
static inline PyObject *
fj_structure_value(const FjNode *node)
{
    FjNodeValue value = fj_code_info[node->code].value;
    return value == FJ_NO_VALUE       ? NULL
           : value == FJ_VALUE_IS_AUX ? node->aux
                                      : PyTuple_GET_ITEM(node->aux, 0);
}

/* For REF nodes. */
static inline uint32_t
fj_node_number(const FjNode *node)
{
    return (uint32_t)PyLong_AsUnsignedLong(
        node->aux); /* can't fail: made by add_ref in flatten.c */
}

/* Returns the first node after the subtree of `node`. */
static inline const FjNode *
fj_structure_skip(const FjStructure *structure, const FjNode *node)
{
    return structure->nodes + fj_structure_info(structure, node)->subtree_end;
}

/* Returns a Structure that is hidden (fj_hide) until it has all nodes: it caches its hash. */
FjStructure *fj_structure_new(FjRegistry *registry);

/* Makes room for `more` nodes.  0, or -1 with MemoryError and the Structure unchanged. */
int fj_structure_grow(FjStructure *structure, size_t more);

/* Appends a node without children.  `aux` can be NULL.  Returns the node. */
static inline FjNode *
fj_structure_add(FjStructure *structure, FjKindCode code, PyObject *aux)
{
    if (FJ_UNLIKELY(structure->count == structure->capacity) &&
        fj_structure_grow(structure, 1) < 0) {
        return NULL;
    }
    uint32_t index = structure->count++;
    FjNode *node = &structure->nodes[index];
    *node = (FjNode){.code = (uint8_t)code, .aux = Py_XNewRef(aux)};
    structure->info[index] = (FjNodeInfo){.subtree_end = index + 1};
    return node;
}

/* Appends a node; its children are appended next, then fj_structure_close closes it.  `type`
 * and `aux` can be NULL.  Returns the index of the node, or -1 with an error. */
Py_ssize_t fj_structure_append(FjStructure *structure, FjKindCode code, Py_ssize_t arity,
                               PyTypeObject *type, PyObject *aux);

void fj_structure_close(FjStructure *structure, Py_ssize_t index);

/* (P) Hashes the Structure, once, and takes snapshots of its static values.  0, or -1 with the
 * error of a static value's __hash__, with the path added (fj_structure_add_error_context). */
int fj_structure_hash(FjStructure *structure);

/* (P) 1, 0, or -1 with the error of a static value's __eq__, with the path added. */
int fj_structure_equal(FjStructure *a, FjStructure *b);

/* (P) Compares two nodes without their children.  Structures are equal if all their nodes are.
 * The values must have been equal when the Structures were hashed, and each must still equal
 * its own snapshot.  1, 0, or -1 with an error. */
int fj_structure_equal_nodes(const FjStructure *a, uint32_t i, const FjStructure *b,
                             uint32_t j);

/* (P) For a hashed Structure: 1 if `value` equals the node's value when hashed, and the node's
 * value, which the next trace will use, hasn't changed since.  0, or -1 with an error. */
int fj_structure_has(const FjStructure *structure, const FjNode *node, PyObject *value);

/* The same without Python code, for a value that isn't inert: 1, 0 or
 * FJ_NEEDS_PYTHON. */
int fj_structure_match(const FjStructure *structure, const FjNode *node, PyObject *value);

/* (P) Sets `__filterjit_error_context__` of the current exception to (operation, path of the
 * node, its aux or None).  _base/_errors.py and _base/_messages.py turn it into text.
 * `operation` is "hash", "compare", "sort", "flatten" or "ask". */
void fj_structure_add_error_context(const FjStructure *structure, uint32_t index,
                                    const char *operation);

/* ---- children and paths ---- */

/* Iterates over the children of a node:
 *
 *     for (FjChildren c = fj_children_of(structure, index); fj_children_has(&c);
 *          fj_children_next(&c)) {
 *         ... structure->nodes[c.at], fj_children_key(&c) ...
 *     } */
typedef struct {
    const FjStructure *structure;
    uint32_t parent; /* index of the parent */
    uint32_t number; /* of the child, from 0 */
    uint32_t at;     /* index of the child's node */
} FjChildren;

static inline FjChildren
fj_children_of(const FjStructure *structure, uint32_t parent)
{
    return (FjChildren){.structure = structure, .parent = parent, .at = parent + 1};
}

static inline int
fj_children_has(const FjChildren *c)
{
    return c->number < c->structure->nodes[c->parent].arity;
}

/* The node of the current child must be closed. */
static inline void
fj_children_next(FjChildren *c)
{
    c->number++;
    c->at = c->structure->info[c->at].subtree_end;
}

/* Returns the key of the child.  A name (a parameter or a field) is a str, an item is (key,),
 * and a step that paths omit, such as from an object to its dict field, is None. */
PyObject *fj_children_key(const FjChildren *c);

/* Returns a new list of the keys from the root to a node.  Nodes can still be open. */
PyObject *fj_path_of_node(const FjStructure *structure, uint32_t index);

/* Returns the index of an open leaf's node.  Leaves are counted from 0. */
uint32_t fj_structure_leaf(const FjStructure *structure, Py_ssize_t leaf);
