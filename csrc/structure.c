/* Structures: making, hashing, comparing, and saying where something stands in them.
 *
 * Python code can run where statics are hashed and compared (their own __hash__ and __eq__),
 * where a repr is made, and where references are dropped.  The nodes never change meanwhile,
 * so no index or pointer into them goes stale.
 */
#include "structure.h"

#include <structmember.h>

#include "statics.h"

FjStructure *
fj_structure_new(FjRegistry *registry)
{
    FjStructure *self = PyObject_GC_New(FjStructure, registry->state->structure);
    if (self == NULL) {
        return NULL;
    }
    self->registry = (FjRegistry *)Py_NewRef((PyObject *)registry);
    self->nodes = NULL;
    self->rest = NULL;
    self->count = self->capacity = 0;
    self->arrays = 0;
    self->careful = self->hashed = 0;
    self->hash = 0;
    self->weakrefs = NULL;
    PyObject_GC_Track((PyObject *)self);
    return self;
}

/* Doubles the room.  Both arrays are in one block, which malloc can often extend in place. */
static int
grow(FjStructure *self)
{
    uint32_t capacity = self->capacity == 0 ? 16 : self->capacity * 2;
    FjNode *nodes = NULL;
    if (capacity > self->capacity) {
        nodes = PyMem_Realloc(self->nodes, capacity * (sizeof(FjNode) + sizeof(FjNodeRest)));
    }
    if (nodes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->nodes = nodes;
    self->rest = (FjNodeRest *)(nodes + capacity);
    memmove(self->rest, nodes + self->capacity, self->count * sizeof(FjNodeRest));
    self->capacity = capacity;
    return 0;
}

Py_ssize_t
fj_structure_append(FjStructure *self, FjKindCode code, Py_ssize_t children,
                    PyTypeObject *type, PyObject *aux)
{
    if (self->count == self->capacity && grow(self) < 0) {
        return -1;
    }
    if (children > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a node with more than 2**32 children");
        return -1;
    }
    FjNode *node = &self->nodes[self->count];
    node->code = (uint8_t)code;
    node->flags = 0;
    node->children = (uint32_t)children;
    node->aux = Py_XNewRef(aux);
    FjNodeRest *rest = &self->rest[self->count];
    rest->type = (PyTypeObject *)Py_XNewRef((PyObject *)type);
    rest->hash = 0;
    rest->end = 0;
    return self->count++;
}

void
fj_structure_close(FjStructure *self, Py_ssize_t index)
{
    self->rest[index].end = self->count;
}

/* ---- hash and equality ---- */

static Py_uhash_t
hash_address(const void *address)
{
    return (Py_uhash_t)((uintptr_t)address >> 4);
}

/* (P) The part of a node's hash that its aux gives: keys, statics, aux data. */
static int
hash_aux(FjStructure *self, uint32_t index, Py_uhash_t *hash)
{
    FjNode *node = &self->nodes[index];
    Py_hash_t part = 0;
    switch (node->code) {
    case FJ_STATIC:
        if (fj_static_hash(self->registry, node->aux, node->flags & FJ_NODE_FIELD, &part) <
            0) {
            return -1;
        }
        self->rest[index].hash = part;
        break;
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        if (fj_static_hash(self->registry, node->aux, 0, &part) < 0) {
            return -1;
        }
        break;
    case FJ_GENERIC:
        if (fj_static_hash(self->registry, PyTuple_GET_ITEM(node->aux, 0), 1, &part) < 0) {
            return -1;
        }
        self->rest[index].hash = part;
        break;
    default:
        return 0;
    }
    *hash = fj_hash_mix(*hash, (Py_uhash_t)part);
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
        hash = fj_hash_mix(hash, node->code | (Py_uhash_t)node->children << 8);
        hash = fj_hash_mix(hash, hash_address(self->rest[i].type));
        if (hash_aux(self, i, &hash) < 0) {
            fj_structure_blame(self, i, "hash");
            return -1;
        }
    }
    self->hash = hash == (Py_uhash_t)-1 ? -2 : (Py_hash_t)hash;
    self->hashed = 1;
    return 0;
}

/* Where both are hashed, the hashes are compared as well: one object that is in both
 * may have changed between. */
static int
equal_aux(FjStructure *a, FjStructure *b, uint32_t i)
{
    const FjNode *x = &a->nodes[i], *y = &b->nodes[i];
    int changed = a->hashed && b->hashed && a->rest[i].hash != b->rest[i].hash;
    switch (x->code) {
    case FJ_STATIC:
        return changed ? 0 : fj_static_equal(a->registry, x->aux, y->aux);
    case FJ_GENERIC:
        return changed ? 0
                       : fj_static_equal(a->registry, PyTuple_GET_ITEM(x->aux, 0),
                                         PyTuple_GET_ITEM(y->aux, 0));
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        return fj_static_equal(a->registry, x->aux, y->aux);
    default:
        return 1;
    }
}

int
fj_structure_equal(FjStructure *a, FjStructure *b)
{
    if (a == b) {
        return 1;
    }
    if (a->registry != b->registry || a->count != b->count || a->arrays != b->arrays ||
        (a->hashed && b->hashed && a->hash != b->hash)) {
        return 0;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        const FjNode *x = &a->nodes[i], *y = &b->nodes[i];
        if (x->code != y->code || x->children != y->children ||
            a->rest[i].type != b->rest[i].type || ((x->flags ^ y->flags) & FJ_NODE_WRAPPER)) {
            return 0;
        }
        int same = equal_aux(a, b, i);
        if (same <= 0) {
            if (same < 0) {
                fj_structure_blame(b, i, "compare");
            }
            return same;
        }
    }
    return 1;
}

/* ---- paths ---- */

/* The key under which child `child` hangs below a node: a new reference. */
static PyObject *
child_key(FjStructure *self, uint32_t index, uint32_t child)
{
    const FjNode *node = &self->nodes[index];
    PyObject *item = NULL;
    switch (node->code) {
    case FJ_DEFAULT_DICT:
        if (child == 0) {
            return PyUnicode_FromString("default_factory");
        }
        child--;
        item = PyTuple_GET_ITEM(node->aux, child);
        break;
    case FJ_DICT:
    case FJ_ORDERED_DICT:
        item = PyTuple_GET_ITEM(node->aux, child);
        break;
    case FJ_SLOTS:
        return Py_NewRef(PyTuple_GET_ITEM(node->aux, child));
    case FJ_MODULE:
    case FJ_DATACLASS:
        return Py_NewRef(PyTuple_GET_ITEM(fj_node_kind(node)->names, child));
    case FJ_NAMEDTUPLE: {
        PyObject *fields =
            PyObject_GetAttrString((PyObject *)self->rest[index].type, "_fields");
        PyObject *name = fields == NULL ? NULL : PySequence_GetItem(fields, child);
        Py_XDECREF(fields);
        return name;
    }
    default: {
        PyObject *number = PyLong_FromUnsignedLong(child);
        PyObject *key = number == NULL ? NULL : PyTuple_Pack(1, number);
        Py_XDECREF(number);
        return key;
    }
    }
    return PyTuple_Pack(1, item);
}

PyObject *
fj_structure_path(FjStructure *self, uint32_t target)
{
    PyObject *path = PyList_New(0);
    uint32_t at = 0;
    while (path != NULL && at != target) {
        uint32_t child = 0;
        uint32_t start = at + 1;
        /* A child that is still being filled has no end yet, and holds the target. */
        while (self->rest[start].end != 0 && self->rest[start].end <= target) {
            start = self->rest[start].end;
            child++;
        }
        PyObject *key = child_key(self, at, child);
        if (key == NULL || PyList_Append(path, key) < 0) {
            Py_CLEAR(path);
        }
        Py_XDECREF(key);
        at = start;
    }
    return path;
}

void
fj_structure_blame(FjStructure *self, uint32_t index, const char *deed)
{
    PyObject *exception = fj_compat_take_exception();
    if (PyErr_GivenExceptionMatches(exception, PyExc_RecursionError)) {
        /* Its path is as deep as the tree, and there is no stack left to write it down. */
        fj_compat_give_exception(exception);
        return;
    }
    PyObject *path = fj_structure_path(self, index);
    PyObject *value = self->nodes[index].aux != NULL ? self->nodes[index].aux : Py_None;
    PyObject *blame = path == NULL ? NULL : Py_BuildValue("(sNO)", deed, path, value);
    if (blame == NULL || PyObject_SetAttrString(exception, "__filterjit_blame__", blame) < 0) {
        /* The exception itself matters more than its path. */
        PyErr_Clear();
    }
    Py_XDECREF(blame);
    fj_compat_give_exception(exception);
}

/* ---- the Python type ---- */

static int
structure_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjStructure *self = (FjStructure *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->registry);
    for (uint32_t i = 0; i < self->count; i++) {
        Py_VISIT(self->rest[i].type);
        Py_VISIT(self->nodes[i].aux);
    }
    return 0;
}

static void
structure_dealloc(PyObject *op)
{
    FjStructure *self = (FjStructure *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    for (uint32_t i = 0; i < self->count; i++) {
        Py_XDECREF(self->rest[i].type);
        Py_XDECREF(self->nodes[i].aux);
    }
    PyMem_Free(self->nodes);
    Py_DECREF(self->registry);
    type->tp_free(op);
    Py_DECREF(type);
}

static Py_hash_t
structure_tp_hash(PyObject *op)
{
    FjStructure *self = (FjStructure *)op;
    return fj_structure_hash(self) < 0 ? -1 : self->hash;
}

static PyObject *
structure_richcompare(PyObject *a, PyObject *b, int operation)
{
    if (Py_TYPE(a) != Py_TYPE(b) || (operation != Py_EQ && operation != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    int same = fj_structure_equal((FjStructure *)a, (FjStructure *)b);
    if (same < 0) {
        return NULL;
    }
    return PyBool_FromLong(same == (operation == Py_EQ));
}

/* Appends text made by PyUnicode_FromFormat-like calls; steals `text`, which may be NULL. */
static int
put(PyObject *pieces, PyObject *text)
{
    int result = text == NULL ? -1 : PyList_Append(pieces, text);
    Py_XDECREF(text);
    return result;
}

static int put_node(FjStructure *self, PyObject *pieces, uint32_t *at);

static int
put_children(FjStructure *self, PyObject *pieces, uint32_t index, uint32_t *at)
{
    const FjNode *node = &self->nodes[index];
    int named = node->code == FJ_MODULE || node->code == FJ_DATACLASS ||
                node->code == FJ_NAMEDTUPLE || node->code == FJ_SLOTS;
    int keyed = node->code == FJ_DICT || node->code == FJ_ORDERED_DICT ||
                node->code == FJ_DEFAULT_DICT;
    int first = 1;
    for (uint32_t child = 0; child < node->children; child++) {
        if (self->nodes[*at].code == FJ_MISSING) {
            ++*at;
            continue;
        }
        if (!first && put(pieces, PyUnicode_FromString(", ")) < 0) {
            return -1;
        }
        first = 0;
        if (named || keyed) {
            PyObject *key = child_key(self, index, child);
            if (key == NULL) {
                return -1;
            }
            PyObject *text = PyTuple_Check(key)
                                 ? PyUnicode_FromFormat("%R: ", PyTuple_GET_ITEM(key, 0))
                                 : PyUnicode_FromFormat("%U=", key);
            Py_DECREF(key);
            if (put(pieces, text) < 0) {
                return -1;
            }
        }
        if (put_node(self, pieces, at) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
put_node(FjStructure *self, PyObject *pieces, uint32_t *at)
{
    uint32_t index = (*at)++;
    const FjNode *node = &self->nodes[index];
    const char *close = ")";
    PyObject *open = NULL;
    switch (node->code) {
    case FJ_ARRAY:
        return put(pieces, PyUnicode_FromString("*"));
    case FJ_STATIC:
        return put(pieces, PyUnicode_FromFormat("%R", node->aux));
    case FJ_NONE:
        return put(pieces, PyUnicode_FromString("None"));
    case FJ_TUPLE:
        open = PyUnicode_FromString("(");
        close = node->children == 1 ? ",)" : ")";
        break;
    case FJ_LIST:
        open = PyUnicode_FromString("[");
        close = "]";
        break;
    case FJ_DICT:
        open = PyUnicode_FromString("{");
        close = "}";
        break;
    case FJ_SLOTS:
        open = PyUnicode_FromString("(");
        break;
    default: {
        PyObject *name =
            PyObject_GetAttrString((PyObject *)self->rest[index].type, "__name__");
        open = name == NULL ? NULL : PyUnicode_FromFormat("%S(", name);
        Py_XDECREF(name);
    }
    }
    if (put(pieces, open) < 0) {
        return -1;
    }
    if (Py_EnterRecursiveCall(" in the repr of a Structure")) {
        return -1;
    }
    int result = put_children(self, pieces, index, at);
    Py_LeaveRecursiveCall();
    return result < 0 ? -1 : put(pieces, PyUnicode_FromString(close));
}

static PyObject *
structure_repr(PyObject *op)
{
    FjStructure *self = (FjStructure *)op;
    uint32_t at = 0;
    PyObject *text = NULL;
    PyObject *pieces = PyList_New(0);
    PyObject *nothing = PyUnicode_FromString("");
    if (pieces != NULL && nothing != NULL &&
        put(pieces, PyUnicode_FromString("Structure(")) == 0 &&
        put_node(self, pieces, &at) == 0 && put(pieces, PyUnicode_FromString(")")) == 0) {
        text = PyUnicode_Join(nothing, pieces);
    }
    Py_XDECREF(pieces);
    Py_XDECREF(nothing);
    return text;
}

/* The index of the node that `path`, a tuple of child numbers from the root, leads to; -1 with
 * an error. */
static Py_ssize_t
follow(FjStructure *self, PyObject *path)
{
    uint32_t at = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(path); i++) {
        Py_ssize_t child = PyLong_AsSsize_t(PyTuple_GET_ITEM(path, i));
        if (child == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (child < 0 || child >= self->nodes[at].children) {
            PyErr_SetString(PyExc_IndexError, "no such child");
            return -1;
        }
        for (at++; child > 0; child--) {
            at = self->rest[at].end;
        }
    }
    return at;
}

/* span(*path) -> (first, count) */
static PyObject *
structure_span(PyObject *op, PyObject *path)
{
    FjStructure *self = (FjStructure *)op;
    Py_ssize_t at = follow(self, path);
    if (at < 0) {
        return NULL;
    }
    Py_ssize_t first = 0, count = 0;
    for (uint32_t i = 0; i < self->rest[at].end; i++) {
        if (self->nodes[i].code == FJ_ARRAY) {
            first += i < at;
            count += i >= at;
        }
    }
    return Py_BuildValue("(nn)", first, count);
}

/* array_paths() -> list of paths */
static PyObject *
structure_array_paths(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjStructure *self = (FjStructure *)op;
    PyObject *paths = PyList_New(0);
    for (uint32_t i = 0; paths != NULL && i < self->count; i++) {
        if (self->nodes[i].code == FJ_ARRAY) {
            PyObject *path = fj_structure_path(self, i);
            if (path == NULL || PyList_Append(paths, path) < 0) {
                Py_CLEAR(paths);
            }
            Py_XDECREF(path);
        }
    }
    return paths;
}

static PyMethodDef structure_methods[] = {
    {"span", structure_span, METH_VARARGS,
     "span(*path) -> (first, count): which of the arrays lie below the node that the child\n"
     "numbers of `path` lead to"},
    {"array_paths", structure_array_paths, METH_NOARGS,
     "array_paths() -> a path for each array, in order: a list of str for names and (key,)\n"
     "for items"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef structure_members[] = {
    {"num_arrays", T_PYSSIZET, offsetof(FjStructure, arrays), READONLY,
     "how many leaves are arrays"},
    {"num_nodes", T_UINT, offsetof(FjStructure, count), READONLY,
     "how many nodes there are, leaves included"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjStructure, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot structure_slots[] = {
    {Py_tp_doc, "The shape of a tree and its static leaves: hashable, comparable, immutable."},
    {Py_tp_traverse, structure_traverse},
    {Py_tp_dealloc, structure_dealloc},
    {Py_tp_hash, structure_tp_hash},
    {Py_tp_richcompare, structure_richcompare},
    {Py_tp_repr, structure_repr},
    {Py_tp_methods, structure_methods},
    {Py_tp_members, structure_members},
    {0, NULL},
};

PyType_Spec fj_structure_spec = {
    .name = "filterjit._core.Structure",
    .basicsize = sizeof(FjStructure),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = structure_slots,
};
