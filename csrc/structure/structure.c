/* Appends nodes to Structures, hashes and compares Structures, and adds paths to errors.
 *
 * Python code can run when static values are hashed and compared (their __hash__ and __eq__,
 * and `is_array` for FJ_MAYBE_ARRAY types), when an error context is set, and when references
 * are dropped.  It can't change the nodes, so indices and pointers of nodes stay valid. */
#include "structure/structure.h"

#include "base/hash.h"
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
    self->num_numbered = self->num_refs = 0;
    self->identities = NULL;
    self->open_leaves = 0;
    self->paths = NULL;
    self->is_tree_structure = self->may_run_python = self->hashed = 0;
    self->hash = 0;
    self->weakrefs = NULL;
    return self;
}

/* One allocation for both arrays, which realloc can often extend in place. */
int
fj_structure_grow(FjStructure *self, size_t more)
{
    size_t needed = self->count + more,
           capacity = self->capacity == 0 ? 16 : 2 * (size_t)self->capacity;
    FjNode *nodes = NULL;
    capacity = capacity < needed ? needed : capacity;
    if (capacity <= UINT32_MAX) {
        nodes = PyMem_Realloc(self->nodes, capacity * (sizeof(FjNode) + sizeof(FjNodeInfo)));
    }
    if (nodes == NULL) {
        return fj_raise_no_memory();
    }
    self->nodes = nodes;
    self->info = (FjNodeInfo *)(nodes + capacity);
    memmove(self->info, nodes + self->capacity, self->count * sizeof(FjNodeInfo));
    self->capacity = (uint32_t)capacity;
    return 0;
}

Py_ssize_t
fj_structure_append(FjStructure *self, FjKindCode code, Py_ssize_t arity, PyTypeObject *type,
                    PyObject *aux)
{
    if (arity > UINT32_MAX) {
        return fj_raise(PyExc_OverflowError, "a node with 2**32 children or more");
    }
    if (arity >= self->capacity - self->count &&
        fj_structure_grow(self, (size_t)arity + 1) < 0) {
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
    if (++self->open_nodes % FJ_STRUCTURE_STACK_STEP == 0) {
        node->flags |= FJ_NODE_CHECKS_STACK;
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

/* (P) Mixes the hash of a node's value into `hash`.  Takes a snapshot unless it is inert. */
static int
hash_value(FjStructure *self, uint32_t index, Py_uhash_t *hash)
{
    FjNode *node = &self->nodes[index];
    FjNodeInfo *info = &self->info[index];
    PyObject *value = fj_structure_value(node);
    if (value == NULL) {
        return 0;
    }
    FjSnapshot *snapshot = NULL;
    FjStaticRule rule = fj_static_rule(self->registry, value);
    if (fj_static_rule_is_inert(rule)) {
        if (fj_static_hash(self->registry, value, rule, &info->hash) < 0) {
            return -1;
        }
    }
    else {
        int field = node->code == FJ_CUSTOM || (node->flags & FJ_NODE_FIELD);
        snapshot = fj_snapshot_take(self->registry, value, rule, field);
        if (snapshot == NULL) {
            return -1;
        }
        if (self->hashed) {
            fj_snapshot_free(snapshot);
            return 0;
        }
        info->hash = snapshot->parts[0].hash;
        self->may_run_python |= snapshot->may_run_python && !(node->flags & FJ_NODE_FIXED);
    }
    *hash = fj_hash_mix(*hash, (Py_uhash_t)info->hash);
    FjSnapshot *before = info->snapshot; /* from an attempt that failed at a later node */
    info->snapshot = snapshot;
    fj_snapshot_free(before);
    return 0;
}

/* (P) fj_structure_hash of a locked Structure. */
static int
hash_structure(FjStructure *self)
{
    Py_uhash_t hash = fj_hash_mix(0, self->count);
    for (uint32_t i = 0; i < self->count; i++) {
        const FjNode *node = &self->nodes[i];
        hash = fj_hash_mix(hash, node->code | (Py_uhash_t)node->arity << 8);
        hash = fj_hash_mix(hash, fj_hash_address(self->info[i].type));
        if (hash_value(self, i, &hash) < 0) {
            fj_structure_add_error_context(self, i, "hash");
            return -1;
        }
        if (self->hashed) { /* by Python code in between */
            return 0;
        }
    }
    self->hash = fj_hash_finish(hash);
    FJ_STORE_INT(self->hashed, 1);
    return 0;
}

int
fj_structure_hash(FjStructure *self)
{
    int result = 0;
    if (!FJ_LOAD_INT(self->hashed)) {
        FJ_LOCKED(self, result = self->hashed ? 0 : hash_structure(self));
    }
    return result;
}

int
fj_structure_match(const FjStructure *self, const FjNode *node, PyObject *value)
{
    FjSnapshot *snapshot = fj_structure_info(self, node)->snapshot;
    PyObject *expected = fj_structure_value(node);
    if (!FJ_LOAD_INT(self->hashed) || snapshot == NULL) {
        return FJ_NEEDS_PYTHON;
    }
    int same = fj_snapshot_match(snapshot, value);
    return same > 0 && value != expected ? fj_snapshot_match(snapshot, expected) : same;
}

/* (P) 1 if the node's value, which the next trace will use, isn't an array and, if the
 * Structure was hashed, hasn't changed since.  1, 0, or -1 with an error. */
static int
is_unchanged(const FjStructure *self, const FjNode *node)
{
    FjSnapshot *was = fj_structure_info(self, node)->snapshot;
    int is_array = node->flags & FJ_NODE_MAYBE_ARRAY
                       ? fj_registry_is_array(self->registry, fj_structure_value(node))
                       : 0;
    if (is_array != 0) {
        return is_array < 0 ? -1 : 0;
    }
    return !FJ_LOAD_INT(self->hashed) || was == NULL
               ? 1
               : fj_snapshot_has(was, fj_structure_value(node));
}

int
fj_structure_has(const FjStructure *self, const FjNode *node, PyObject *value)
{
    PyObject *expected = fj_structure_value(node);
    FjSnapshot *snapshot = fj_structure_info(self, node)->snapshot;
    if (snapshot == NULL) { /* the node's value is inert */
        return fj_static_is_inert(self->registry, value)
                   ? fj_static_equal(self->registry, expected, value)
                   : 0;
    }
    int same = fj_snapshot_has(snapshot, value);
    return same > 0 && value != expected ? is_unchanged(self, node) : same;
}

/* (P) Compares the values of two nodes, if any.  1, 0, or -1 with an error. */
static int
equal_values(const FjStructure *a, const FjNode *x, const FjStructure *b, const FjNode *y)
{
    PyObject *value = fj_structure_value(x), *other = fj_structure_value(y);
    int same;
    if (value == NULL) {
        return 1;
    }
    if (FJ_LOAD_INT(a->hashed) && FJ_LOAD_INT(b->hashed)) {
        const FjNodeInfo *of_x = fj_structure_info(a, x), *of_y = fj_structure_info(b, y);
        if (of_x->hash != of_y->hash) {
            return 0;
        }
        if (of_x->snapshot == NULL || of_y->snapshot == NULL) { /* one is inert */
            return of_x->snapshot == of_y->snapshot &&
                   fj_static_equal(a->registry, value, other);
        }
        same = fj_snapshot_equal(of_x->snapshot, of_y->snapshot);
        if (same <= 0 || value == other) {
            return same;
        }
    }
    else {
        same = fj_static_equal_now(a->registry, value, other);
    }
    same = same > 0 ? is_unchanged(a, x) : same;
    return same > 0 ? is_unchanged(b, y) : same;
}

int
fj_structure_equal_nodes(const FjStructure *a, uint32_t i, const FjStructure *b, uint32_t j)
{
    const FjNode *x = &a->nodes[i], *y = &b->nodes[j];
    if (x->code != y->code || x->arity != y->arity || a->info[i].type != b->info[j].type ||
        ((x->flags ^ y->flags) & FJ_NODE_WRAPPER) ||
        (x->code == FJ_MODULE && x->aux != y->aux)) {
        return 0;
    }
    return equal_values(a, x, b, y);
}

int
fj_structure_equal(FjStructure *a, FjStructure *b)
{
    if (a == b) {
        return 1;
    }
    if (a->registry != b->registry || a->count != b->count ||
        (FJ_LOAD_INT(a->hashed) && FJ_LOAD_INT(b->hashed) && a->hash != b->hash)) {
        return 0;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        int same = fj_structure_equal_nodes(a, i, b, i);
        if (same < 0) {
            fj_structure_add_error_context(b, i, "compare");
        }
        if (same <= 0) {
            return same;
        }
    }
    return 1;
}

/* ---- children and paths ---- */

/* Returns the kind's key for a child (borrowed), or NULL. */
static PyObject *
key_of_kind(const FjNode *node, uint32_t number)
{
    const FjNodeKind *kind = fj_node_kind(node);
    PyObject *keys = kind->keys != NULL ? kind->keys : kind->names;
    return keys != NULL && number < (size_t)PyTuple_GET_SIZE(keys)
               ? PyTuple_GET_ITEM(keys, number)
               : NULL;
}

PyObject *
fj_children_key(const FjChildren *c)
{
    const FjNode *node = &c->structure->nodes[c->parent];
    PyObject *key = NULL;
    Py_ssize_t at;
    switch (fj_code_info[node->code].keys) {
    case FJ_KEYS_AUX_ITEMS:
        at = (Py_ssize_t)c->number - (node->arity - PyTuple_GET_SIZE(node->aux));
        return at < 0 ? PyUnicode_FromString("default_factory")
                      : PyTuple_Pack(1, PyTuple_GET_ITEM(node->aux, at));
    case FJ_KEYS_AUX:
        key = PyTuple_GET_ITEM(node->aux, c->number);
        break;
    case FJ_KEYS_LAST_OF_AUX:
        key = PyTuple_GET_ITEM(PyTuple_GET_ITEM(node->aux, 2), c->number);
        break;
    case FJ_KEYS_OF_KIND:
        key = key_of_kind(node, c->number);
        break;
    default:
        break;
    }
    return key != NULL ? Py_NewRef(key) : Py_BuildValue("(n)", (Py_ssize_t)c->number);
}

/* Appends `key` (stolen) to the list `*path`, unless it is None.  On failure, or if `key` is
 * NULL (an earlier error), clears `*path`. */
static void
extend_path(PyObject **path, PyObject *key)
{
    if (key == Py_None) {
        Py_DECREF(key);
    }
    else if (fj_list_steal(*path, key) < 0) {
        Py_CLEAR(*path);
    }
}

PyObject *
fj_path_of_node(const FjStructure *self, uint32_t target)
{
    PyObject *path = PyList_New(0);
    for (uint32_t at = 0; path != NULL && at != target;) {
        FjChildren c = fj_children_of(self, at);
        /* An open child has subtree_end 0, and the target is below it. */
        while (self->info[c.at].subtree_end != 0 && self->info[c.at].subtree_end <= target) {
            fj_children_next(&c);
        }
        extend_path(&path, fj_children_key(&c));
        at = c.at;
    }
    return path;
}

uint32_t
fj_structure_leaf(const FjStructure *self, Py_ssize_t leaf)
{
    uint32_t i = 0;
    while (self->nodes[i].code != FJ_ARRAY || leaf-- > 0) {
        i++;
    }
    return i;
}

/* ---- errors ---- */

void
fj_structure_add_error_context(const FjStructure *self, uint32_t index, const char *operation)
{
    PyObject *exception = fj_compat_get_raised();
    if (PyErr_GivenExceptionMatches(exception, PyExc_RecursionError)) {
        /* The path can be as deep as the tree, and too little stack is left to format it. */
        fj_compat_set_raised(exception);
        return;
    }
    PyObject *path = fj_path_of_node(self, index), *value = self->nodes[index].aux;
    PyObject *context = path == NULL ? NULL
                                     : Py_BuildValue("(sNO)", operation, path,
                                                     value == NULL ? Py_None : value);
    if (context == NULL ||
        PyObject_SetAttrString(exception, "__filterjit_error_context__", context) < 0) {
        PyErr_Clear(); /* the exception matters more than its path */
    }
    Py_XDECREF(context);
    fj_compat_set_raised(exception);
}
