/* Looks into a Structure: single nodes, statics, and differences from another Structure.
 *
 * A comparison goes through the nodes of both Structures in step:
 *
 *     was   ARGUMENTS  DICT("a","b")  ARRAY  STATIC 1           STATIC "relu"
 *     now   ARGUMENTS  DICT("b","c")  STATIC 2  ARRAY           STATIC "tanh"
 *
 * The dicts differ, so their common children are paired by key: the two values of "b".  Below
 * other differing nodes it skips the children, unless only the aux data of a custom node
 * differs.  The result is the pairs (1, 1), (3, 2) and (4, 4).
 *
 * Python code can run in the __eq__ and __hash__ of statics and keys, in the __eq__ of avals,
 * and in hashing a Structure.  It can't change the nodes. */
#include "tree/inspect.h"

#include "structure/record.h"

/* Returns a new reference. */
static PyObject *
node_detail(const FjStructure *self, const FjNode *node)
{
    if (fj_node_has_kind(node) && fj_node_kind(node)->names != NULL) {
        return PyTuple_GetSlice(fj_node_kind(node)->names, 0, node->arity);
    }
    if (node->code == FJ_REF) {
        return fj_path_of_node(self, self->identities[fj_node_number(node)]);
    }
    PyObject *value = node->code == FJ_ARGUMENTS ? node->aux : fj_structure_value(node);
    return Py_NewRef(value == NULL ? Py_None : value);
}

PyObject *
fj_structure_describe_node(const FjStructure *self, uint32_t index, PyObject *key)
{
    const FjNode *node = &self->nodes[index];
    const char *kind = node->flags & FJ_NODE_LEAVES
                           ? (node->code == FJ_LIST ? "list of leaves" : "tuple of leaves")
                           : fj_code_info[node->code].name;
    PyObject *type = (PyObject *)self->info[index].type;
    PyObject *detail = node_detail(self, node);
    return detail == NULL ? NULL
                          : Py_BuildValue("(sIONO)", kind, node->arity,
                                          type == NULL ? Py_None : type, detail, key);
}

/* Appends (index, description) of a node to a list.  Steals `key` (NULL: an earlier error). */
static int
append_node(PyObject *list, const FjStructure *self, uint32_t index, PyObject *key)
{
    PyObject *node = key == NULL ? NULL : fj_structure_describe_node(self, index, key);
    Py_XDECREF(key);
    return node == NULL ? -1 : fj_list_steal(list, Py_BuildValue("(IN)", index, node));
}

PyObject *
fj_structure_lineage(PyObject *op, PyObject *index)
{
    const FjStructure *self = (const FjStructure *)op;
    size_t target = PyLong_AsSize_t(index);
    if (target == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (target >= self->count) {
        PyErr_SetString(PyExc_IndexError, "no such node");
        return NULL;
    }
    PyObject *list = PyList_New(0);
    int result = list == NULL ? -1 : append_node(list, self, 0, Py_NewRef(Py_None));
    for (uint32_t at = 0; result == 0 && at != target;) {
        FjChildren c = fj_children_of(self, at);
        while (self->info[c.at].subtree_end <= target) {
            fj_children_next(&c);
        }
        at = c.at;
        result = append_node(list, self, at, fj_children_key(&c));
    }
    if (result < 0) {
        Py_CLEAR(list);
    }
    return list;
}

static Py_ssize_t
leaves_between(const FjStructure *self, uint32_t from, uint32_t to)
{
    Py_ssize_t leaves = 0;
    for (uint32_t i = from; i < to; i++) {
        leaves += fj_node_leaves(&self->nodes[i]);
    }
    return leaves;
}

PyObject *
fj_structure_span(PyObject *op, PyObject *const *path, Py_ssize_t depth)
{
    const FjStructure *self = (const FjStructure *)op;
    uint32_t at = 0;
    for (Py_ssize_t level = 0; level < depth; level++) {
        size_t number = PyLong_AsSize_t(path[level]);
        if (number == (size_t)-1 && PyErr_Occurred()) {
            return NULL;
        }
        FjChildren c = fj_children_of(self, at);
        while (fj_children_has(&c) && c.number < number) {
            fj_children_next(&c);
        }
        if (!fj_children_has(&c)) {
            PyErr_SetString(PyExc_IndexError, "no such child");
            return NULL;
        }
        at = c.at;
    }
    return Py_BuildValue("(nn)", leaves_between(self, 0, at),
                         leaves_between(self, at, self->info[at].subtree_end));
}

/* ---- statics and types ---- */

/* True for numbers, text and None. */
static int
is_atom(FjRegistry *registry, PyObject *value)
{
    FjStaticRule rule = fj_static_rule(registry, Py_TYPE(value));
    return rule == FJ_BY_VALUE || rule == FJ_FLOAT_BITS || rule == FJ_COMPLEX_BITS;
}

PyObject *
fj_structure_statics(PyObject *op, PyObject *args)
{
    const FjStructure *self = (const FjStructure *)op;
    int with_aux = 0;
    if (!PyArg_ParseTuple(args, "|p:_statics", &with_aux)) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < self->count; i++) {
        const FjNode *node = &self->nodes[i];
        if ((node->code == FJ_STATIC || (with_aux && node->code == FJ_CUSTOM)) &&
            !is_atom(self->registry, fj_structure_value(node)) &&
            fj_list_steal(list, Py_BuildValue("(IO)", i, fj_structure_value(node))) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *
fj_structure_types(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const FjStructure *self = (const FjStructure *)op;
    PyObject *found = PySet_New(NULL);
    const PyTypeObject *last = NULL;
    for (uint32_t i = 0; found != NULL && i < self->count; i++) {
        PyTypeObject *type = self->info[i].type;
        if (type != NULL && type != last && PySet_Add(found, (PyObject *)type) < 0) {
            Py_CLEAR(found);
        }
        last = type;
    }
    return found;
}

PyObject *
fj_structure_held(PyObject *op, PyObject *type)
{
    FjStructure *self = (FjStructure *)op;
    if (!PyType_Check(type)) {
        PyErr_Format(PyExc_TypeError, "expected a type, not %R", type);
        return NULL;
    }
    PyObject *list = fj_structure_hash(self) < 0 ? NULL : PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < self->count; i++) {
        const FjSnapshot *snapshot = self->info[i].snapshot;
        for (uint32_t part = 0; list != NULL && snapshot != NULL && part < snapshot->count;
             part++) {
            PyObject *value = snapshot->parts[part].object;
            if (value != NULL && PyObject_TypeCheck(value, (PyTypeObject *)type) &&
                PyList_Append(list, value) < 0) {
                Py_CLEAR(list);
            }
        }
    }
    return list;
}

/* ---- differences ---- */

/* A run of subtrees in one Structure, and as many in the other. */
typedef struct {
    uint32_t at, end, other;
    Py_ssize_t leaf, other_leaf; /* number of the next leaf in each */
} Range;

typedef struct {
    const FjStructure *self, *other;
    PyObject *avals, *other_avals; /* tuples, or NULL */
    /* At most `most` pairs of arrays are found, and of others.  `more` are left out. */
    Py_ssize_t most, arrays, others, more;
    FjVector todo;   /* a stack of Ranges */
    PyObject *found; /* a list */
} Comparison;

/* (P) Compares the first nodes of a Range, and the avals of arrays.  An Exception counts as a
 * difference.  1, 0, or -1 with any other exception. */
static int
equal_first(const Comparison *c, const Range *r)
{
    int same = fj_structure_equal_nodes(c->self, r->at, c->other, r->other);
    if (same > 0 && c->self->nodes[r->at].code == FJ_ARRAY && c->avals != NULL &&
        r->leaf < PyTuple_GET_SIZE(c->avals) &&
        r->other_leaf < PyTuple_GET_SIZE(c->other_avals)) {
        same =
            PyObject_RichCompareBool(PyTuple_GET_ITEM(c->avals, r->leaf),
                                     PyTuple_GET_ITEM(c->other_avals, r->other_leaf), Py_EQ);
    }
    if (same < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return 0;
    }
    return same;
}

/* Adds the first nodes of a Range to the result, or counts them if it is full. */
static int
add_first(Comparison *c, const Range *r)
{
    int is_array = c->self->nodes[r->at].code == FJ_ARRAY,
        are_arrays = is_array && c->other->nodes[r->other].code == FJ_ARRAY;
    Py_ssize_t *count = are_arrays ? &c->arrays : &c->others;
    if (*count == c->most) {
        c->more++;
        return 0;
    }
    (*count)++;
    return fj_list_steal(c->found,
                         Py_BuildValue("(IInn)", r->at, r->other, r->leaf, r->other_leaf));
}

static int
push(Comparison *c, Range range)
{
    Range *place =
        range.at == range.end ? &range : fj_vector_append(&c->todo, 1, sizeof(Range));
    if (place == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *place = range;
    return 0;
}

static int
is_keyed(const FjNode *node)
{
    return node->code == FJ_MODULE || fj_code_info[node->code].keys == FJ_KEYS_AUX_ITEMS;
}

/* Returns a new dict from the key of each child to the bytes of its Range. */
static PyObject *
children_by_key(const FjStructure *self, uint32_t parent, Py_ssize_t leaf)
{
    PyObject *found = PyDict_New();
    for (FjChildren c = fj_children_of(self, parent); found != NULL && fj_children_has(&c);
         fj_children_next(&c)) {
        Range range = {.at = c.at, .end = self->info[c.at].subtree_end, .leaf = leaf};
        PyObject *key = fj_children_key(&c);
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)&range, sizeof(range));
        if (key == NULL || bytes == NULL || PyDict_SetItem(found, key, bytes) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(key);
        Py_XDECREF(bytes);
        leaf += leaves_between(self, range.at, range.end);
    }
    return found;
}

/* (P) Pairs the children of two nodes by key and pushes them. */
static int
pair_children(Comparison *c, const Range *r)
{
    PyObject *by_key = children_by_key(c->self, r->at, r->leaf);
    Py_ssize_t first = c->todo.count, leaf = r->other_leaf;
    int result = by_key == NULL ? -1 : 0;
    for (FjChildren child = fj_children_of(c->other, r->other);
         result == 0 && fj_children_has(&child); fj_children_next(&child)) {
        PyObject *key = fj_children_key(&child);
        PyObject *bytes = key == NULL ? NULL : PyDict_GetItemWithError(by_key, key);
        Py_XDECREF(key);
        if (bytes != NULL) {
            Range range;
            memcpy(&range, PyBytes_AS_STRING(bytes), sizeof(range));
            range.other = child.at;
            range.other_leaf = leaf;
            result = push(c, range);
        }
        else if (PyErr_Occurred()) {
            result = -1;
        }
        leaf += leaves_between(c->other, child.at, c->other->info[child.at].subtree_end);
    }
    Range *pushed = (Range *)c->todo.items + first; /* pop the first child first */
    for (Py_ssize_t i = 0, j = c->todo.count - first - 1; result == 0 && i < j; i++, j--) {
        Range range = pushed[i];
        pushed[i] = pushed[j];
        pushed[j] = range;
    }
    Py_XDECREF(by_key);
    return result;
}

/* (P) */
static int
compare_range(Comparison *c, Range r)
{
    while (r.at < r.end) {
        const FjNode *node = &c->self->nodes[r.at], *other = &c->other->nodes[r.other];
        int same = equal_first(c, &r);
        if (same < 0 || (same == 0 && add_first(c, &r) < 0)) {
            return -1;
        }
        int is_alike = node->code == other->code &&
                       c->self->info[r.at].type == c->other->info[r.other].type;
        if (same || (is_alike && node->code == FJ_CUSTOM && node->arity == other->arity)) {
            r.leaf += fj_node_leaves(node);
            r.other_leaf += fj_node_leaves(other);
            r.at++;
            r.other++;
            continue;
        }
        uint32_t end = c->self->info[r.at].subtree_end,
                 other_end = c->other->info[r.other].subtree_end;
        Range rest = {end, r.end, other_end, r.leaf + leaves_between(c->self, r.at, end),
                      r.other_leaf + leaves_between(c->other, r.other, other_end)};
        if (is_alike && is_keyed(node)) {
            return push(c, rest) < 0 ? -1 : pair_children(c, &r);
        }
        r = rest;
    }
    return 0;
}

PyObject *
fj_structure_differences(PyObject *op, PyObject *args)
{
    PyObject *other, *avals, *other_avals;
    Comparison c = {.self = (FjStructure *)op};
    if (!PyArg_ParseTuple(args, "O!OOn:_differences", Py_TYPE(op), &other, &avals,
                          &other_avals, &c.most)) {
        return NULL;
    }
    c.other = (FjStructure *)other;
    if (PyTuple_Check(avals) && PyTuple_Check(other_avals)) {
        c.avals = avals;
        c.other_avals = other_avals;
    }
    c.found = PyList_New(0);
    int result = c.found == NULL ? -1 : compare_range(&c, (Range){.end = c.self->count});
    while (result == 0 && c.todo.count > 0) {
        result = compare_range(&c, ((Range *)c.todo.items)[--c.todo.count]);
    }
    fj_vector_clear(&c.todo);
    if (result < 0) {
        Py_XDECREF(c.found);
        return NULL;
    }
    return Py_BuildValue("(Nn)", c.found, c.more);
}
