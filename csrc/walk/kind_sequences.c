/* Reads and builds tuples, lists and named tuples (kinds.h).
 *
 * Python code can run wherever a child is built, in a named tuple's class with its own
 * __new__, and when a reference is dropped. */
#include "walk/kinds.h"

static int
read_tuple(FjContents *c, PyObject *tuple, FjNodeKind *kind)
{
    c->code = kind->code;
    if (kind->code == FJ_NAMEDTUPLE) {
        c->type = kind->type;
        c->aux = Py_NewRef((PyObject *)kind);
    }
    return fj_contents_of_tuple(c, Py_NewRef(tuple));
}

/* Copies the list, which other code can change. */
static int
read_list(FjContents *c, PyObject *list, FjNodeKind *Py_UNUSED(kind))
{
    c->code = FJ_LIST;
    return fj_contents_of_tuple(c, PyList_AsTuple(list));
}

/* Builds the children of a node into a new tuple or list.
 *
 * Most containers hold only leaves, and no other code runs while they are filled.  The others
 * are hidden meanwhile. */
static int
fill_items(FjBuilder *b, const FjNode *node, PyObject *container, PyObject **items)
{
    uint32_t i = 0;
    for (; i < node->arity; i++) {
        const FjNode *child = b->next;
        if (FJ_LIKELY(child->code == FJ_ARRAY)) {
            items[i] = Py_NewRef(*b->arrays++);
        }
        else if (child->code == FJ_STATIC) {
            items[i] = Py_NewRef(child->aux);
        }
        else {
            break;
        }
        b->next++;
    }
    if (i == node->arity) {
        return 0;
    }
    fj_hide(container);
    for (; i < node->arity; i++) {
        items[i] = fj_build_node(b);
        if (items[i] == NULL) {
            return -1;
        }
    }
    fj_show(container);
    return 0;
}

PyObject *
fj_build_items(FjBuilder *b, const FjNode *node, PyObject *container)
{
    if (container != NULL &&
        fill_items(b, node, container, PySequence_Fast_ITEMS(container)) < 0) {
        Py_CLEAR(container);
    }
    return container;
}

static PyObject *
build_tuple(FjBuilder *b, const FjNode *node)
{
    if (node->aux != NULL) { /* a fixed tuple, shared by all trees */
        b->next = fj_structure_skip(b->structure, node);
        return Py_NewRef(node->aux);
    }
    return fj_build_items(b, node, PyTuple_New(node->arity));
}

static PyObject *
build_list(FjBuilder *b, const FjNode *node)
{
    return fj_build_items(b, node, PyList_New(node->arity));
}

static PyObject *
make_namedtuple(FjBuilder *b, const FjNode *node, PyObject **items)
{
    PyTypeObject *type = fj_structure_info(b->structure, node)->type;
    PyObject *result;
    if (!fj_node_kind(node)->fill_directly) {
        result = PyObject_Vectorcall((PyObject *)type, items, node->arity, NULL);
        fj_drop_children(items, node->arity);
    }
    else if ((result = fj_compat_tuple_alloc(type, node->arity)) == NULL) {
        fj_drop_children(items, node->arity);
    }
    else {
        memcpy(((PyTupleObject *)result)->ob_item, items, node->arity * sizeof(PyObject *));
    }
    return result;
}

static PyObject *
build_namedtuple(FjBuilder *b, const FjNode *node)
{
    return fj_build_of_children(b, node, 0, node->arity, make_namedtuple);
}

const FjReader fj_tuple_reader = {read_tuple, build_tuple};
const FjReader fj_list_reader = {read_list, build_list};
const FjReader fj_namedtuple_reader = {read_tuple, build_namedtuple};
