/* The Python type Structure: its methods, operators and attributes.
 *
 * Python code can run in the __hash__, __eq__, __repr__ and __str__ of static values (leaves
 * and fields that aren't arrays) and keys, in the iterator passed to `unflatten`, in
 * flatten.c, build.c and messages.c, and when references are dropped. */
#include "structure/structure.h"

#include <structmember.h>

#include "structure/paths.h"
#include "structure/messages.h"
#include "walk/build.h"
#include "walk/flatten.h"
#include "walk/prefix.h"

static int
structure_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjStructure *self = (FjStructure *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->registry);
    for (uint32_t i = 0; i < self->count; i++) {
        Py_VISIT(self->info[i].type);
        Py_VISIT(self->info[i].model);
        Py_VISIT(self->nodes[i].aux);
        int result = fj_snapshot_traverse(self->info[i].snapshot, visit, arg);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

static void
structure_dealloc(PyObject *op)
{
    FjStructure *self = (FjStructure *)op;
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    for (uint32_t i = 0; i < self->count; i++) {
        Py_XDECREF(self->info[i].type);
        Py_XDECREF(self->info[i].model);
        Py_XDECREF(self->nodes[i].aux);
        fj_snapshot_free(self->info[i].snapshot);
    }
    PyMem_Free(self->identities);
    PyMem_Free(self->nodes);
    Py_XDECREF(self->paths);
    Py_DECREF(self->registry);
    fj_object_free(op);
}

/* Adds a note with the path to an error of a static's __hash__ or __eq__.  For jitted calls,
 * add_path in _base/_errors.py does this. */
static void
note_path(const FjStructure *self)
{
    if (self->is_tree_structure) {
        fj_messages_note_context(self->registry);
    }
}

static Py_hash_t
structure_tp_hash(PyObject *op)
{
    FjStructure *self = (FjStructure *)op;
    if (fj_structure_hash(self) < 0) {
        note_path(self);
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
        note_path((FjStructure *)a);
        return NULL;
    }
    return PyBool_FromLong(same == (operation == Py_EQ));
}

/* 0, or -1 with a ValueError for a Structure of a jitted call. */
static int
check_is_tree_structure(const FjStructure *self)
{
    if (!self->is_tree_structure) {
        return fj_raise(PyExc_ValueError, "this structure is one of a jitted call");
    }
    return 0;
}

/* 0, or -1 with a ValueError for the Structure of a call's arguments, which aren't a tree. */
static int
check_is_tree(const FjStructure *self)
{
    if (self->nodes[0].code == FJ_ARGUMENTS) {
        return fj_raise(PyExc_ValueError, "this is the structure of a call's arguments");
    }
    return 0;
}

static PyObject *
structure_unflatten(PyObject *op, PyObject *leaves)
{
    FjStructure *self = (FjStructure *)op;
    PyObject *tree = NULL;
    if (check_is_tree(self) < 0) {
        return NULL;
    }
    if (Py_TYPE(leaves)->tp_iter == NULL && !PySequence_Check(leaves)) {
        return PyErr_Format(PyExc_TypeError, "the leaves must be a sequence, not %R", leaves);
    }
    PyObject *given = fj_tuple_of(leaves);
    if (given == NULL) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(given) != self->open_leaves) {
        PyErr_Format(PyExc_ValueError, "the structure takes %zd %s, not %zd",
                     self->open_leaves, self->open_leaves == 1 ? "leaf" : "leaves",
                     PyTuple_GET_SIZE(given));
    }
    else {
        tree = fj_build_tree(self, ((PyTupleObject *)given)->ob_item);
    }
    Py_DECREF(given);
    return tree;
}

/* True for a leaf, open or static. */
static int
is_leaf(const FjNode *node)
{
    return node->code == FJ_ARRAY ||
           (node->code == FJ_STATIC && !(node->flags & (FJ_NODE_FIELD | FJ_NODE_ARGUMENT)));
}

/* _skeleton(hole): the tree with a hole in place of each leaf, static ones too. */
static PyObject *
structure_skeleton(PyObject *op, PyObject *hole)
{
    FjStructure *self = (FjStructure *)op;
    if (check_is_tree_structure(self) < 0) {
        return NULL;
    }
    FjStructure all_open = *self; /* a builder only reads its nodes, and caches models */
    all_open.nodes = PyMem_New(FjNode, self->count);
    PyObject **holes = PyMem_New(PyObject *, self->count), *skeleton = NULL;
    if (all_open.nodes == NULL || holes == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (uint32_t i = 0; i < self->count; i++) {
        FjNode *node = &all_open.nodes[i];
        *node = self->nodes[i];
        node->code = is_leaf(node) ? FJ_ARRAY : node->code;
        node->flags &= (uint16_t)~FJ_NODE_PLAIN_KEYS; /* no model */
        holes[i] = hole;
    }
    skeleton = fj_build_tree(&all_open, holes);
done:
    PyMem_Free(all_open.nodes);
    PyMem_Free(holes);
    return skeleton;
}

/* _leaves(hole): a tuple with the static leaves, and a hole for each open leaf. */
static PyObject *
structure_leaves(PyObject *op, PyObject *hole)
{
    FjStructure *self = (FjStructure *)op;
    PyObject *list = PyList_New(0), *leaves = NULL;
    int result = list == NULL ? -1 : 0;
    for (uint32_t i = 0; result == 0 && i < self->count; i++) {
        const FjNode *node = &self->nodes[i];
        if (is_leaf(node)) {
            result = PyList_Append(list, node->code == FJ_ARRAY ? hole : node->aux);
        }
    }
    leaves = result < 0 ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return leaves;
}

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

/* 0, or -1 with an IndexError if there is no such node. */
static int
check_index(const FjStructure *self, Py_ssize_t index)
{
    return index >= 0 && index < self->count ? 0 : fj_raise(PyExc_IndexError, "no such node");
}

/* Returns the index of a node, or -1 with an error. */
static Py_ssize_t
node_index(const FjStructure *self, PyObject *number)
{
    Py_ssize_t index = PyNumber_AsSsize_t(number, PyExc_IndexError);
    return (index == -1 && PyErr_Occurred()) || check_index(self, index) < 0 ? -1 : index;
}

static PyObject *
structure_node(PyObject *op, PyObject *number)
{
    FjStructure *self = (FjStructure *)op;
    Py_ssize_t index = node_index(self, number);
    if (index < 0) {
        return NULL;
    }
    const FjNode *node = &self->nodes[index];
    PyObject *type = (PyObject *)self->info[index].type, *detail = node_detail(self, node);
    return detail == NULL ? NULL
                          : Py_BuildValue("(sIONn)", fj_code_info[node->code].name,
                                          node->arity, type == NULL ? Py_None : type, detail,
                                          (Py_ssize_t)self->info[index].subtree_end);
}

static PyObject *
structure_children(PyObject *op, PyObject *number)
{
    FjStructure *self = (FjStructure *)op;
    Py_ssize_t index = node_index(self, number);
    PyObject *list = index < 0 ? NULL : PyList_New(0);
    if (list == NULL) {
        return NULL;
    }
    for (FjChildren c = fj_children_of(self, (uint32_t)index);
         list != NULL && fj_children_has(&c); fj_children_next(&c)) {
        if (fj_list_steal(list, Py_BuildValue("(IN)", c.at, fj_children_key(&c))) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
structure_arrays(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjStructure *self = (FjStructure *)op;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < self->count; i++) {
        if (self->nodes[i].code == FJ_ARRAY &&
            fj_list_steal(list, PyLong_FromUnsignedLong(i)) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *
structure_holds(PyObject *op, PyObject *type)
{
    FjStructure *self = (FjStructure *)op;
    if (!PyType_Check(type)) {
        return PyErr_Format(PyExc_TypeError, "expected a type, not %R", type);
    }
    int found = 0;
    for (uint32_t i = 0; !found && i < self->count; i++) {
        PyTypeObject *of_node = self->info[i].type;
        found = of_node != NULL && PyType_IsSubtype(of_node, (PyTypeObject *)type);
    }
    return PyBool_FromLong(found);
}

static PyObject *
structure_key_path(PyObject *op, PyObject *number)
{
    FjStructure *self = (FjStructure *)op;
    Py_ssize_t index = node_index(self, number);
    return index < 0 ? NULL : fj_path_of_node(self, (uint32_t)index);
}

static PyObject *
structure_key_paths(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return fj_paths((FjStructure *)op, 0);
}

static PyObject *
structure_paths(PyObject *op, void *Py_UNUSED(closure))
{
    FjStructure *self = (FjStructure *)op;
    PyObject *paths = FJ_LOAD_POINTER(self->paths);
    if (paths == NULL) { /* a key's __str__ can ask for the same paths */
        PyObject *list = fj_paths(self, 1);
        paths = list == NULL ? NULL : PyList_AsTuple(list);
        Py_XDECREF(list);
        paths = fj_keep_first(op, &self->paths, paths);
    }
    return Py_XNewRef(paths);
}

/* True for numbers, text and None. */
static int
is_atom(FjRegistry *registry, PyObject *value)
{
    FjStaticRule rule = fj_static_rule(registry, value);
    return rule == FJ_BY_VALUE || rule == FJ_FLOAT_BITS || rule == FJ_COMPLEX_BITS;
}

static PyObject *
structure_statics(PyObject *op, PyObject *args)
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

static PyObject *
structure_inside_statics(PyObject *op, PyObject *type)
{
    FjStructure *self = (FjStructure *)op;
    if (!PyType_Check(type)) {
        return PyErr_Format(PyExc_TypeError, "expected a type, not %R", type);
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

/* (P) Compares nodes without their children, in step.  Ends before the first pair that
 * differs, or whose comparison raises an Exception. */
static PyObject *
structure_count_equal(PyObject *op, PyObject *args)
{
    FjStructure *self = (FjStructure *)op, *other;
    Py_ssize_t i, j, end;
    if (!PyArg_ParseTuple(args, "nnO!n:_count_equal", &i, &end, Py_TYPE(op), &other, &j) ||
        check_index(self, i) < 0 || check_index(other, j) < 0) {
        return NULL;
    }
    Py_ssize_t count = 0, most = Py_MIN(Py_MIN(end, self->count) - i, other->count - j);
    int equal = 1;
    for (; equal > 0 && count < most; count += equal) {
        equal = fj_structure_equal_nodes(self, (uint32_t)(i + count), other,
                                         (uint32_t)(j + count));
        if (equal < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();
            equal = 0;
        }
    }
    return equal < 0 ? NULL : PyLong_FromSsize_t(count);
}

static PyObject *
structure_subtrees(PyObject *op, PyObject *args)
{
    FjStructure *self = (FjStructure *)op;
    const char *name = "the tree", *model = "the structure";
    PyObject *tree, *list = NULL;
    if (!PyArg_ParseTuple(args, "O|ss:_subtrees", &tree, &name, &model) ||
        check_is_tree_structure(self) < 0) {
        return NULL;
    }
    FJ_LEAFBUF(leaves, FJ_LEAFBUF_FEW);
    if (fj_flatten_up_to(self, tree, name, model, &leaves) == 0) {
        list = fj_leafbuf_move(&leaves);
    }
    fj_leafbuf_clear(&leaves);
    return list;
}

static PyObject *
structure_repr(PyObject *op)
{
    return fj_messages_call(((FjStructure *)op)->registry, "repr_of", "(O)", op);
}

static PyObject *
structure_combine(PyObject *op, PyObject *groups)
{
    FjStructure *self = (FjStructure *)op;
    return check_is_tree(self) < 0
               ? NULL
               : fj_messages_call(self->registry, "combine", "(OO)", op, groups);
}

PyDoc_STRVAR(
    structure_doc,
    "The structure of a pytree: its treedef together with its static leaves.\n\n"
    "`flatten` and `partition_dict` return a structure and the open leaves of a tree.\n"
    "To build a tree, pass open leaves. All other leaves are static: the structure\n"
    "holds them.\n\n"
    "A structure is immutable, and hashable if its static leaves are. Two structures\n"
    "are equal if their nodes are the same and their static values have equal types\n"
    "and values, like the static arguments of `filter_jit`.\n\n"
    "Examples:\n"
    "    >>> leaves, structure = flatten({'x': jnp.ones(2), 'name': 'relu'})\n"
    "    >>> structure == flatten({'x': jnp.zeros(2), 'name': 'relu'})[1]\n"
    "    True\n"
    "    >>> structure == flatten({'x': jnp.zeros(2), 'name': 'tanh'})[1]\n"
    "    False");

PyDoc_STRVAR(
    structure_unflatten_doc,
    "unflatten($self, leaves, /)\n"
    "--\n\n"
    "Builds a tree from its open leaves.\n"
    "\n"
    "Arguments:\n"
    "    leaves: an iterable of the `num_leaves` open leaves, in the order of `paths`.\n"
    "\n"
    "Returns:\n"
    "    A new tree of this structure with these leaves and the static leaves.\n"
    "\n"
    "Raises:\n"
    "    ValueError: the number of leaves is not `num_leaves`.");

PyDoc_STRVAR(
    structure_combine_doc,
    "combine($self, /, *groups)\n--\n\n"
    "Builds a tree from dicts of its open leaves, such as `partition_dict` returns.\n\n"
    "Arguments:\n"
    "    groups: dicts from path to leaf, in any order. Together they must contain each\n"
    "        of `paths` exactly once.\n\n"
    "Returns:\n"
    "    A new tree of this structure with these leaves and the static leaves.\n\n"
    "Raises:\n"
    "    ValueError: a path is missing, unknown, or in more than one group. The message\n"
    "        lists these paths.\n"
    "    TypeError: a group is not a dict.");

PyDoc_STRVAR(structure_paths_doc,
             "The path of each open leaf, in order: a tuple of str such as\n"
             "``'layers.0.weight'``.");

PyDoc_STRVAR(
    structure_num_leaves_doc,
    "The number of open leaves, which `unflatten` takes, like `num_leaves` of a treedef\n"
    "in JAX and optree. Static leaves don't count.");

/* Methods with a leading underscore are for filterjit's own Python modules. */
static PyMethodDef structure_methods[] = {
    {"unflatten", structure_unflatten, METH_O, structure_unflatten_doc},
    {"combine", structure_combine, METH_VARARGS, structure_combine_doc},
    FJ_METHOD(
        "_node", structure_node, METH_O, "($self, index, /)",
        "Returns (kind, arity, type or None, detail, end) of a node. The detail is the\n"
        "value of a static, the keys of a dict, the aux data of a custom node, the names of\n"
        "the children, if any, the path of a ref's object, or None. The end is the index of\n"
        "the first node after the subtree."),
    FJ_METHOD(
        "_children", structure_children, METH_O, "($self, index, /)",
        "Returns a list of (index, key) of the children of a node. The key leads from it to\n"
        "the child (fj_children_key)."),
    FJ_METHOD("_arrays", structure_arrays, METH_NOARGS, "($self, /)",
              "Returns the indices of the nodes that are arrays, or open leaves."),
    FJ_METHOD("_holds", structure_holds, METH_O, "($self, type, /)",
              "Returns True if a node is of a type or of a subclass of it."),
    FJ_METHOD("_key_path", structure_key_path, METH_O, "($self, index, /)",
              "Returns the path of a node: a list with a str per name and (key,) per item."),
    FJ_METHOD("_key_paths", structure_key_paths, METH_NOARGS, "($self, /)",
              "Returns the paths of the open leaves (in a jitted call's arguments: of the\n"
              "arrays), in the form of `_key_path`."),
    FJ_METHOD(
        "_statics", structure_statics, METH_VARARGS, "($self, with_aux=False, /)",
        "Returns a list of (index, value) of all statics except str, bytes, numbers and\n"
        "None and, `with_aux`, of all custom nodes and their aux data."),
    FJ_METHOD("_inside_statics", structure_inside_statics, METH_O, "($self, type, /)",
              "Returns a list of the instances of a type among the statics and in their\n"
              "compared contents. Can hash the structure, and then raise the error of a\n"
              "``__hash__``."),
    FJ_METHOD(
        "_count_equal", structure_count_equal, METH_VARARGS,
        "($self, start, end, other, other_start, /)",
        "Compares nodes with those of another structure in step, without their children.\n"
        "Returns how many are equal before the first that differs, or whose comparison\n"
        "raises an Exception."),
    FJ_METHOD("_skeleton", structure_skeleton, METH_O, "($self, hole, /)",
              "Returns the tree with `hole` as each leaf, open or static."),
    FJ_METHOD("_subtrees", structure_subtrees, METH_VARARGS,
              "($self, tree, name='the tree', model='the structure', /)",
              "Returns the subtrees of a tree at the open leaves. Raises ValueError if the\n"
              "structure isn't a prefix of the tree; the message calls the two `model` and\n"
              "`name`."),
    FJ_METHOD("_leaves", structure_leaves, METH_O, "($self, hole, /)",
              "Returns a tuple of all leaves: the value of a static one, `hole` for an open\n"
              "one."),
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef structure_getset[] = {
    {"paths", structure_paths, NULL, structure_paths_doc, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef structure_members[] = {
    {"num_leaves", T_PYSSIZET, offsetof(FjStructure, open_leaves), READONLY,
     structure_num_leaves_doc},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjStructure, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot structure_slots[] = {
    {Py_tp_doc, (void *)structure_doc},         {Py_tp_traverse, structure_traverse},
    {Py_tp_dealloc, structure_dealloc},         {Py_tp_hash, structure_tp_hash},
    {Py_tp_richcompare, structure_richcompare}, {Py_tp_repr, structure_repr},
    {Py_tp_methods, structure_methods},         {Py_tp_getset, structure_getset},
    {Py_tp_members, structure_members},         {0, NULL},
};

FJ_SPEC(fj_structure_spec, "filterjit.types.Structure", sizeof(FjStructure), structure_slots,
        Py_TPFLAGS_DISALLOW_INSTANTIATION);
