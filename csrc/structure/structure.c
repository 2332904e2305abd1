/* Appending nodes to Structures, hashing and comparing Structures, and the paths in errors.
 *
 * Python code can run where static values are hashed and compared (their __hash__ and __eq__,
 * and `is_array` for instances of FJ_MAYBE_ARRAY types), where a path is computed or written,
 * and where references are dropped.  It cannot change the nodes, so indices of nodes and
 * pointers to them stay valid.
 */
#include "structure/structure.h"

#include "base/hash.h"
#include "structure/children.h"
#include "structure/statics.h"

FjStructure *
fj_structure_new(FjRegistry *registry)
{
    FjStructure *self = PyObject_GC_New(FjStructure, registry->state->structure);
    if (self == NULL) {
        return NULL;
    }
    self->registry = (FjRegistry *)Py_NewRef((PyObject *)registry);
    self->nodes = NULL;
    self->info = NULL;
    self->count = self->capacity = self->open_nodes = 0;
    self->num_identities = self->num_refs = 0;
    self->identities = NULL;
    self->all_leaves = self->open_leaves = 0;
    self->static_leaves = NULL;
    self->paths = NULL;
    self->is_tree_structure = self->may_run_python = self->is_asked = self->hashed = 0;
    self->untaken = 0;
    self->hash = 0;
    self->weakrefs = NULL;
    return self;
}

/* Both arrays are in one allocation, which realloc can often extend in place. */
int
fj_structure_grow(FjStructure *self)
{
    uint32_t capacity = self->capacity == 0 ? 16 : self->capacity * 2;
    FjNode *nodes = NULL;
    if (capacity > self->capacity) {
        nodes = PyMem_Realloc(self->nodes, capacity * (sizeof(FjNode) + sizeof(FjNodeInfo)));
    }
    if (nodes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->nodes = nodes;
    self->info = (FjNodeInfo *)(nodes + capacity);
    memmove(self->info, nodes + self->capacity, self->count * sizeof(FjNodeInfo));
    self->capacity = capacity;
    return 0;
}

Py_ssize_t
fj_structure_append(FjStructure *self, FjKindCode code, Py_ssize_t arity, PyTypeObject *type,
                    PyObject *aux)
{
    if (arity > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a node with 2**32 children or more");
        return -1;
    }
    FjNode *node = fj_structure_add(self, code, aux);
    if (node == NULL) {
        return -1;
    }
    FjNodeInfo *info = &self->info[self->count - 1];
    node->arity = (uint32_t)arity;
    info->type = (PyTypeObject *)Py_XNewRef((PyObject *)type);
    info->subtree_end = 0;
    if (++self->open_nodes % FJ_STRUCTURE_DEEP == 0) {
        node->flags |= FJ_NODE_DEEP;
    }
    return self->count - 1;
}

void
fj_structure_close(FjStructure *self, Py_ssize_t index)
{
    FjNode *node = &self->nodes[index];
    self->info[index].subtree_end = self->count;
    self->open_nodes--;
    if (self->count - index - 1 <= node->arity) {
        node->flags |= FJ_NODE_SHALLOW;
    }
}

/* ---- hash and equality ---- */

PyObject *
fj_structure_value(const FjNode *node)
{
    switch (node->code) {
    case FJ_STATIC:
    case FJ_REF:
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        return node->aux;
    case FJ_CUSTOM:
        return PyTuple_GET_ITEM(node->aux, 0);
    default:
        return NULL;
    }
}

/* (P) Takes the snapshot of a node's value, and mixes its hash into `hash`.  0, or -1 with an
 * error. */
static int
hash_value(FjStructure *self, uint32_t index, Py_uhash_t *hash)
{
    FjNode *node = &self->nodes[index];
    PyObject *value = fj_structure_value(node);
    if (value == NULL) {
        return 0;
    }
    int field = node->code == FJ_CUSTOM || (node->flags & FJ_NODE_FIELD);
    PyObject *snapshot = fj_static_is_inert(self->registry, value)
                             ? Py_NewRef(value)
                             : fj_static_snapshot(self->registry, value, field);
    Py_hash_t part = 0;
    int result = snapshot == NULL ? -1 : fj_static_hash(self->registry, snapshot, &part);
    *hash = fj_hash_mix(*hash, (Py_uhash_t)part);
    self->info[index].hash = part;
    if (snapshot != value && result == 0) {
        Py_XSETREF(self->info[index].cached, Py_NewRef(snapshot));
    }
    Py_XDECREF(snapshot);
    return result;
}

/* (P) 0, or -1 with an error. */
static int
hash_static_leaf(FjRegistry *registry, PyObject *value, Py_hash_t *hash)
{
    PyObject *snapshot = fj_static_snapshot(registry, value, 0);
    int result = snapshot == NULL ? -1 : fj_static_hash(registry, snapshot, hash);
    Py_XDECREF(snapshot);
    return result;
}

/* (P) Mixes the hashes of the static leaves into `hash`.  0, or -1 with an error. */
static int
hash_static_leaves(FjStructure *self, Py_uhash_t *hash)
{
    for (Py_ssize_t i = 0; i < self->all_leaves; i++) {
        Py_hash_t part = 0;
        if (self->static_leaves[i] != NULL &&
            hash_static_leaf(self->registry, self->static_leaves[i], &part) < 0) {
            fj_structure_add_leaf_context(self, i, "hash");
            return -1;
        }
        *hash = fj_hash_mix(*hash, (Py_uhash_t)part);
    }
    return 0;
}

int
fj_structure_hash(FjStructure *self)
{
    if (self->hashed) {
        return 0;
    }
    Py_uhash_t hash = fj_hash_mix(0, self->count);
    for (uint32_t i = 0; i < self->count; i++) {
        const FjNode *node = &self->nodes[i];
        hash = fj_hash_mix(hash, node->code | (Py_uhash_t)node->arity << 8);
        hash = fj_hash_mix(hash, fj_hash_address(self->info[i].type));
        if (hash_value(self, i, &hash) < 0) {
            fj_structure_add_error_context(self, i, "hash");
            return -1;
        }
    }
    if (self->static_leaves != NULL && hash_static_leaves(self, &hash) < 0) {
        return -1;
    }
    self->hash = fj_hash_finish(hash);
    self->hashed = 1;
    return 0;
}

/* The snapshot of the node's value that was taken when the Structure was hashed, borrowed;
 * NULL when the Structure is not hashed, or when the value is its own snapshot. */
static inline PyObject *
cached_copy(const FjStructure *self, const FjNode *node)
{
    return !self->hashed || node->flags & FJ_NODE_PLAIN_KEYS
               ? NULL
               : fj_structure_info(self, node)->cached;
}

/* (P) The snapshot of the node's value when the Structure was hashed, or of now if it is not
 * hashed.  A new reference, or NULL with an error. */
static PyObject *
snapshot_of(const FjStructure *self, const FjNode *node)
{
    if (!self->hashed) {
        return fj_static_snapshot(self->registry, fj_structure_value(node), 1);
    }
    PyObject *copy = cached_copy(self, node);
    return Py_NewRef(copy != NULL ? copy : fj_structure_value(node));
}

/* (P) Whether the node's value still equals `was`, which snapshot_of returned for it.  1, 0,
 * or -1 with an error. */
static int
is_unchanged(const FjStructure *self, const FjNode *node, PyObject *was)
{
    PyObject *value = fj_structure_value(node);
    if (!self->hashed || was == value) {
        return 1;
    }
    PyObject *now = fj_static_snapshot(self->registry, value, 1);
    int same = now == NULL ? -1 : fj_static_equal(self->registry, was, now);
    Py_XDECREF(now);
    return same;
}

/* (P) `same`, or 0 if the node's value has become an array since it was flattened.  -1 with an
 * error. */
static int
is_still_static(const FjStructure *self, const FjNode *node, int same)
{
    if (FJ_LIKELY(same <= 0 || !(node->flags & FJ_NODE_MAYBE_ARRAY))) {
        return same;
    }
    int is_array = fj_registry_is_array(self->registry, fj_structure_value(node));
    return is_array < 0 ? -1 : !is_array;
}

/* (P) Whether a value with this snapshot equals the node's value as it was
 * and as it is.  1, 0, or -1 with an error. */
static int
has_snapshot(const FjStructure *self, const FjNode *node, PyObject *value, PyObject *snapshot)
{
    PyObject *was = snapshot_of(self, node);
    int same = was == NULL ? -1 : fj_static_equal(self->registry, was, snapshot);
    if (same > 0 && value != fj_structure_value(node)) {
        same = is_unchanged(self, node, was);
    }
    Py_XDECREF(was);
    return is_still_static(self, node, same);
}

int
fj_structure_has(const FjStructure *self, const FjNode *node, PyObject *value, int field)
{
    PyObject *expected = fj_structure_value(node);
    if (fj_static_is_inert(self->registry, expected)) {
        return is_still_static(self, node, fj_static_equal(self->registry, expected, value));
    }
    Py_hash_t hash;
    PyObject *snapshot = fj_static_snapshot(self->registry, value, field);
    int same = snapshot == NULL || fj_static_hash(self->registry, snapshot, &hash) < 0 ? -1
               : hash == fj_structure_info(self, node)->hash
                   ? has_snapshot(self, node, value, snapshot)
                   : 0;
    Py_XDECREF(snapshot);
    return same;
}

/* Contents that are taken once more are those of a value that other equal objects were put in.
 * Where that goes on, they are not worth it. */
#define MOST_TAKINGS 8

/* Whether the node counts among FjStructure.untaken as long as it has no contents. */
static int
is_counted(const FjNode *node)
{
    return !(node->flags & FJ_NODE_SELF_EQUAL) &&
           (node->code == FJ_STATIC || (node->flags & FJ_NODE_ITSELF));
}

int
fj_structure_take_contents(FjStructure *self, const FjNode *node)
{
    FjNodeInfo *info = &self->info[node - self->nodes];
    PyObject *value = fj_structure_value(node);
    if (!self->hashed || info->takings >= MOST_TAKINGS || cached_copy(self, node) == NULL ||
        (node->flags & FJ_NODE_MAYBE_ARRAY)) {
        return 0;
    }
    FjContents *contents;
    info->takings++;
    if (fj_contents_take(self->registry, value, &contents) < 0) {
        return -1;
    }
    if (contents == NULL) {
        info->takings = MOST_TAKINGS;
        return 0;
    }
    /* Taking them may have run Python code, and so may this. */
    int same = is_unchanged(self, node, cached_copy(self, node));
    if (same > 0 && fj_contents_are_same(contents)) {
        FjContents *before = info->contents;
        info->contents = contents;
        self->untaken -= before == NULL && is_counted(node);
        contents = before;
    }
    PyObject *exception = fj_compat_take_exception(); /* none is set while objects are freed */
    fj_contents_free(contents);
    fj_compat_give_exception(exception);
    return same < 0 ? -1 : 0;
}

/* (P) Whether the values of two nodes are equal, if they have one.  1, 0, or -1 with an error.
 *
 * If both Structures are hashed, the hashes are compared too.  One object with an __eq__ of
 * its own may be in both Structures and may have changed between the two hashings; it still
 * equals itself. */
static int
equal_values(const FjStructure *a, const FjNode *x, const FjStructure *b, const FjNode *y)
{
    PyObject *value = fj_structure_value(y);
    if (value == NULL) {
        return 1;
    }
    if (a->hashed && b->hashed) {
        if (fj_structure_info(a, x)->hash != fj_structure_info(b, y)->hash) {
            return 0;
        }
        if (cached_copy(a, x) == NULL && cached_copy(b, y) == NULL) {
            return is_still_static(a, x,
                                   fj_static_equal(a->registry, fj_structure_value(x), value));
        }
    }
    PyObject *snapshot = snapshot_of(b, y);
    int same = snapshot == NULL ? -1 : has_snapshot(a, x, value, snapshot);
    if (same > 0 && value != fj_structure_value(x)) {
        same = is_unchanged(b, y, snapshot);
    }
    Py_XDECREF(snapshot);
    return same;
}

int
fj_structure_equal_nodes(const FjStructure *a, uint32_t i, const FjStructure *b, uint32_t j)
{
    const FjNode *x = &a->nodes[i], *y = &b->nodes[j];
    if (x->code != y->code || x->arity != y->arity || a->info[i].type != b->info[j].type ||
        ((x->flags ^ y->flags) & (FJ_NODE_WRAPPER | FJ_NODE_LEAVES)) ||
        (x->code == FJ_MODULE && x->aux != y->aux)) {
        return 0;
    }
    return equal_values(a, x, b, y);
}

/* (P) Whether the static leaves are equal.  1, 0, or -1 with an error. */
static int
equal_static_leaves(FjStructure *a, FjStructure *b)
{
    for (Py_ssize_t i = 0; i < a->all_leaves; i++) {
        PyObject *x = a->static_leaves[i], *y = b->static_leaves[i];
        if (x == NULL || y == NULL) {
            if (x != y) {
                return 0;
            }
            continue;
        }
        int same = fj_static_equal_now(a->registry, x, y);
        if (same <= 0) {
            if (same < 0) {
                fj_structure_add_leaf_context(b, i, "compare");
            }
            return same;
        }
    }
    return 1;
}

int
fj_structure_equal(FjStructure *a, FjStructure *b)
{
    if (a == b) {
        return 1;
    }
    if (a->registry != b->registry || a->count != b->count ||
        a->open_leaves != b->open_leaves || a->all_leaves != b->all_leaves ||
        (a->static_leaves == NULL) != (b->static_leaves == NULL) ||
        (a->hashed && b->hashed && a->hash != b->hash)) {
        return 0;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        int same = fj_structure_equal_nodes(a, i, b, i);
        if (same <= 0) {
            if (same < 0) {
                fj_structure_add_error_context(b, i, "compare");
            }
            return same;
        }
    }
    return a->static_leaves == NULL ? 1 : equal_static_leaves(a, b);
}

/* ---- errors ---- */

/* Sets the error context of `exception`, and sets the exception.  Steals `exception` and
 * `path`, which may be NULL with an error. */
static void
set_context(PyObject *exception, const char *operation, PyObject *path, PyObject *value)
{
    PyObject *context = path == NULL ? NULL
                                     : Py_BuildValue("(sNO)", operation, path,
                                                     value == NULL ? Py_None : value);
    if (context == NULL ||
        PyObject_SetAttrString(exception, "__filterjit_error_context__", context) < 0) {
        PyErr_Clear(); /* the exception matters more than its path */
    }
    Py_XDECREF(context);
    fj_compat_give_exception(exception);
}

void
fj_structure_add_leaf_context(const FjStructure *self, Py_ssize_t leaf, const char *operation)
{
    PyObject *exception = fj_compat_take_exception();
    set_context(exception, operation, fj_path_of_leaf(self, leaf),
                fj_structure_static_leaf(self, leaf));
}

void
fj_structure_add_error_context(const FjStructure *self, uint32_t index, const char *operation)
{
    PyObject *exception = fj_compat_take_exception();
    if (PyErr_GivenExceptionMatches(exception, PyExc_RecursionError)) {
        /* Its path may be as deep as the tree, and too little stack is left for its text. */
        fj_compat_give_exception(exception);
        return;
    }
    set_context(exception, operation, fj_path_of_node(self, index), self->nodes[index].aux);
}
