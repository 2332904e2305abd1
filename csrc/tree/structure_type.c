/* The Python type Structure: what is asked of a Structure by its methods and operators.
 *
 * Python code can run in what its statics and keys are asked (==, hash, repr, str), in the
 * iterator of the leaves that it is given, in what build.c and flatten_up_to.c say, and where
 * references are dropped.
 */
#include "tree/structure_type.h"

#include <structmember.h>

#include "walk/build.h"
#include "tree/partition.h"
#include "structure/paths.h"
#include "structure/structure.h"
#include "structure/repr.h"
#include "walk/flatten_up_to.h"

static int
structure_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjStructure *self = (FjStructure *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->registry);
    for (Py_ssize_t i = 0; self->static_leaves != NULL && i < self->all_leaves; i++) {
        Py_VISIT(self->static_leaves[i]);
    }
    for (uint32_t i = 0; i < self->count; i++) {
        Py_VISIT(self->info[i].type);
        Py_VISIT(self->info[i].cached);
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
        Py_XDECREF(self->info[i].type);
        Py_XDECREF(self->info[i].cached);
        Py_XDECREF(self->nodes[i].aux);
    }
    for (Py_ssize_t i = 0; self->static_leaves != NULL && i < self->all_leaves; i++) {
        Py_XDECREF(self->static_leaves[i]);
    }
    PyMem_Free(self->static_leaves);
    PyMem_Free(self->nodes);
    Py_XDECREF(self->paths);
    Py_DECREF(self->registry);
    type->tp_free(op);
    Py_DECREF(type);
}

static Py_hash_t
structure_tp_hash(PyObject *op)
{
    FjStructure *self = (FjStructure *)op;
    if (fj_structure_hash(self) < 0) {
        if (self->every_leaf) {
            fj_structure_note_error_context();
        }
        return -1;
    }
    return self->hash;
}

static PyObject *
structure_richcompare(PyObject *a, PyObject *b, int operation)
{
    if (Py_TYPE(a) != Py_TYPE(b) || (operation != Py_EQ && operation != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    int same = fj_structure_equal((FjStructure *)a, (FjStructure *)b);
    if (same < 0) {
        if (((FjStructure *)a)->every_leaf) {
            fj_structure_note_error_context();
        }
        return NULL;
    }
    return PyBool_FromLong(same == (operation == Py_EQ));
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
        if (child < 0 || child >= self->nodes[at].arity) {
            PyErr_SetString(PyExc_IndexError, "no such child");
            return -1;
        }
        for (at++; child > 0; child--) {
            at = self->info[at].subtree_end;
        }
    }
    return at;
}

/* 0, or -1 with a ValueError where a Structure was made in the other of the two ways. */
static int
expect(const FjStructure *self, int every_leaf)
{
    if (self->every_leaf != every_leaf) {
        PyErr_SetString(PyExc_ValueError, every_leaf
                                              ? "this structure is one of a jitted call"
                                              : "this structure is not one of a jitted call");
        return -1;
    }
    return 0;
}

/* The same where the root is that of a call, whose arguments are no tree. */
static int
expect_tree(const FjStructure *self)
{
    if (self->nodes[0].code == FJ_ARGUMENTS) {
        PyErr_SetString(PyExc_ValueError, "this structure is that of a call's arguments");
        return -1;
    }
    return 0;
}

/* _span(*path) -> (first, count) */
static PyObject *
structure_span(PyObject *op, PyObject *path)
{
    FjStructure *self = (FjStructure *)op;
    Py_ssize_t at = expect(self, 0) < 0 ? -1 : follow(self, path);
    if (at < 0) {
        return NULL;
    }
    Py_ssize_t first = 0, count = 0;
    for (uint32_t i = 0; i < self->info[at].subtree_end; i++) {
        if (self->nodes[i].code == FJ_ARRAY) {
            first += i < at;
            count += i >= at;
        }
    }
    return Py_BuildValue("(nn)", first, count);
}

/* _array_paths() -> list of paths */
static PyObject *
structure_array_paths(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjStructure *self = (FjStructure *)op;
    PyObject *paths = expect(self, 0) < 0 ? NULL : PyList_New(0);
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

/* unflatten(leaves) -> tree */
static PyObject *
structure_unflatten(PyObject *op, PyObject *leaves)
{
    FjStructure *self = (FjStructure *)op;
    PyObject *tree = NULL;
    PyObject *given = expect_tree(self) < 0 ? NULL : PySequence_Tuple(leaves);
    if (given == NULL) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(given) != self->open_leaves) {
        PyErr_Format(PyExc_ValueError, "the structure takes %zd leaves, not %zd",
                     self->open_leaves, PyTuple_GET_SIZE(given));
    }
    else {
        tree = fj_build_open(self, ((PyTupleObject *)given)->ob_item);
    }
    Py_DECREF(given);
    return tree;
}

/* flatten_up_to(tree) -> list */
static PyObject *
structure_flatten_up_to(PyObject *op, PyObject *tree)
{
    FjStructure *self = (FjStructure *)op;
    PyObject *list = NULL;
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    if (expect(self, 1) < 0) {
        return NULL;
    }
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    if (fj_flatten_up_to(self, tree, "the tree", "the structure", &leaves) == 0 &&
        (list = PyList_New(self->open_leaves)) != NULL) {
        for (Py_ssize_t i = 0, given = 0; i < self->all_leaves; i++) {
            if (self->static_leaves == NULL || self->static_leaves[i] == NULL) {
                PyList_SET_ITEM(list, given++, Py_NewRef(leaves.items[i]));
            }
        }
    }
    fj_leafbuf_clear(&leaves);
    return list;
}

/* _parts(hole) -> (skeleton, statics or None) */
static PyObject *
structure_parts(PyObject *op, PyObject *hole)
{
    FjStructure *self = (FjStructure *)op;
    PyObject *statics = NULL, *skeleton = NULL, *result = NULL;
    PyObject **holes = NULL;
    if (expect(self, 1) < 0) {
        return NULL;
    }
    holes = PyMem_New(PyObject *, (size_t)self->all_leaves + 1);
    statics = self->static_leaves == NULL ? Py_NewRef(Py_None) : PyList_New(self->all_leaves);
    if (holes == NULL || statics == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < self->all_leaves; i++) {
        holes[i] = hole;
        if (self->static_leaves != NULL) {
            PyList_SET_ITEM(
                statics, i,
                Py_NewRef(self->static_leaves[i] == NULL ? hole : self->static_leaves[i]));
        }
    }
    skeleton = fj_build_tree(self, holes);
    result = skeleton == NULL ? NULL : PyTuple_Pack(2, skeleton, statics);
done:
    PyMem_Free(holes);
    Py_XDECREF(skeleton);
    Py_XDECREF(statics);
    return result;
}

/* What is to be known of a node; a new reference. */
static PyObject *
node_detail(const FjNode *node)
{
    switch (node->code) {
    case FJ_STATIC:
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
    case FJ_ARGUMENTS:
        return Py_NewRef(node->aux);
    case FJ_CUSTOM:
        return PyTuple_Pack(2, PyTuple_GET_ITEM(node->aux, 0), PyTuple_GET_ITEM(node->aux, 2));
    case FJ_MODULE:
    case FJ_DATACLASS:
        return PyTuple_GetSlice(fj_node_kind(node)->names, 0, node->arity);
    default:
        return Py_NewRef(Py_None);
    }
}

/* _nodes() -> list of (kind, children, type, detail, hash) */
static PyObject *
structure_nodes(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjStructure *self = (FjStructure *)op;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < self->count; i++) {
        const FjNode *node = &self->nodes[i];
        const FjNodeInfo *info = &self->info[i];
        const char *kind = node->code == FJ_ARGUMENTS ? "arguments"
                           : node->code == FJ_MISSING ? "missing"
                                                      : fj_node_kind_names[node->code];
        PyObject *type = info->type == NULL ? Py_None : (PyObject *)info->type;
        PyObject *detail = node_detail(node);
        PyObject *item = detail == NULL ? NULL
                                        : Py_BuildValue("(sIONn)", kind, node->arity, type,
                                                        detail, info->hash);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

/* combine(*groups) -> tree */
static PyObject *
structure_combine(PyObject *op, PyObject *const *groups, Py_ssize_t count)
{
    return expect_tree((FjStructure *)op) < 0 ? NULL
                                              : fj_partition_combine_dicts(op, groups, count);
}

static PyObject *
structure_paths(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_XNewRef(fj_paths_open((FjStructure *)op));
}

static PyMethodDef structure_methods[] = {
    {"_span", structure_span, METH_VARARGS,
     "_span(*path) -> (first, count): which of the arrays lie below the node that the child\n"
     "numbers of `path` lead to"},
    {"_array_paths", structure_array_paths, METH_NOARGS,
     "_array_paths() -> a path for each array, in order: a list of str for names and (key,)\n"
     "for items"},
    {"_nodes", structure_nodes, METH_NOARGS,
     "_nodes() -> a list of (kind, number of children, type or None, detail, hash), each "
     "node\n"
     "before its children. The detail is a static's value, a dict's keys, the names of a\n"
     "Module's, a dataclass's or a call's children, or (aux data, keys); the hash is the\n"
     "static's, once the structure has been hashed"},
    {"unflatten", structure_unflatten, METH_O,
     "unflatten(leaves) -> the tree with these leaves, an iterable; ValueError where they "
     "are\n"
     "too few or too many"},
    {"flatten_up_to", structure_flatten_up_to, METH_O,
     "flatten_up_to(tree) -> a list of what `tree`, of which this structure is a prefix, has "
     "in\n"
     "the place of each leaf; ValueError that says where, if it is not one"},
    {"combine", (PyCFunction)(void (*)(void))structure_combine, METH_FASTCALL,
     "combine(*groups) -> the tree with the leaves of these dicts from path to leaf, "
     "whatever\n"
     "their order; ValueError that lists the paths which are missing, unknown or doubled"},
    {"_parts", structure_parts, METH_O,
     "_parts(hole) -> (skeleton, statics): the tree with `hole` for each leaf, and what "
     "stands "
     "in\n"
     "each leaf, `hole` where it is given, or None where all are; `from_parts` undoes it"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef structure_getset[] = {
    {"paths", structure_paths, NULL,
     "the path of each leaf, a tuple of str such as 'layers.0.weight'", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef structure_members[] = {
    {"num_leaves", T_PYSSIZET, offsetof(FjStructure, open_leaves), READONLY,
     "how many leaves a tree of this structure is made of, statics not counted"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjStructure, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot structure_slots[] = {
    {Py_tp_doc, "The shape of a tree and its static leaves: hashable, comparable, immutable."},
    {Py_tp_traverse, structure_traverse},
    {Py_tp_dealloc, structure_dealloc},
    {Py_tp_hash, structure_tp_hash},
    {Py_tp_richcompare, structure_richcompare},
    {Py_tp_repr, fj_structure_repr},
    {Py_tp_methods, structure_methods},
    {Py_tp_getset, structure_getset},
    {Py_tp_members, structure_members},
    {0, NULL},
};

PyType_Spec fj_structure_spec = {
    .name = "filterjit.Structure",
    .basicsize = sizeof(FjStructure),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = structure_slots,
};
