/* The repr is written in one pass over the nodes.
 *
 * Python code can run in the reprs of keys and static values, in the `__name__` of classes and
 * in the `_fields` of named tuples.  It cannot change the Structure.
 */
#include "structure/repr.h"

#define MAX_CHILDREN 10   /* written for one node */
#define MAX_NODES 120     /* written in all */
#define MAX_CHARACTERS 60 /* written for one value */

typedef struct {
    FjStructure *structure;
    PyObject *pieces; /* list of str */
    uint32_t at;      /* the index of the next node */
    Py_ssize_t leaf;  /* the number of leaves before it */
    int written;      /* the number of nodes written */
} Repr;

static int put_node(Repr *r);

/* Appends `text`, which is stolen; NULL is an error that is passed on. */
static int
put(Repr *r, PyObject *text)
{
    return fj_list_take(r->pieces, text);
}

static int
put_value(Repr *r, PyObject *value)
{
    PyObject *text = PyObject_Repr(value);
    if (text != NULL && PyUnicode_GET_LENGTH(text) > MAX_CHARACTERS) {
        PyObject *start = PyUnicode_Substring(text, 0, MAX_CHARACTERS);
        Py_SETREF(text, start == NULL ? NULL : PyUnicode_FromFormat("%U...", start));
        Py_XDECREF(start);
    }
    return put(r, text);
}

static int
put_leaf(Repr *r)
{
    PyObject *value = fj_structure_static_leaf(r->structure, r->leaf++);
    return value != NULL ? put_value(r, value) : put(r, PyUnicode_FromString("*"));
}

/* Writes `name=` or `key: `; nothing for an item of a sequence or of a custom node. */
static int
put_key(Repr *r, uint32_t index, uint32_t child)
{
    switch (r->structure->nodes[index].code) {
    case FJ_MODULE:
    case FJ_OBJECT:
    case FJ_NAMEDTUPLE:
    case FJ_ARGUMENTS:
    case FJ_DICT:
    case FJ_ORDERED_DICT:
    case FJ_DEFAULT_DICT:
        break;
    default:
        return 0;
    }
    PyObject *key = fj_structure_key(r->structure, index, child);
    if (key == NULL) {
        return -1;
    }
    PyObject *text = key == Py_None ? PyUnicode_FromString("")
                     : PyTuple_Check(key)
                         ? PyUnicode_FromFormat("%R: ", PyTuple_GET_ITEM(key, 0))
                         : PyUnicode_FromFormat("%U=", key);
    Py_DECREF(key);
    return put(r, text);
}

/* Skips nodes up to `end`, counting leaves. */
static void
skip_to(Repr *r, uint32_t end)
{
    for (; r->at < end; r->at++) {
        r->leaf += fj_node_leaves(&r->structure->nodes[r->at]);
    }
}

/* Skips the children from `child` on, and writes how many they are. */
static int
put_omitted(Repr *r, uint32_t index, uint32_t child)
{
    const FjNode *node = &r->structure->nodes[index];
    skip_to(r, r->structure->info[index].subtree_end);
    if (node->flags & FJ_NODE_LEAVES) {
        r->leaf += node->arity - child;
    }
    return put(r, PyUnicode_FromFormat("%s... %u more", child == 0 ? "" : ", ",
                                       (unsigned)(node->arity - child)));
}

static int
put_children(Repr *r, uint32_t index)
{
    const FjNode *node = &r->structure->nodes[index];
    int first = 1;
    for (uint32_t child = 0; child < node->arity; child++) {
        int bare = (node->flags & FJ_NODE_LEAVES) != 0;
        if (child == MAX_CHILDREN || r->written > MAX_NODES) {
            return put_omitted(r, index, child);
        }
        if (!bare && r->structure->nodes[r->at].code == FJ_MISSING) {
            r->at++;
            continue;
        }
        if ((!first && put(r, PyUnicode_FromString(", ")) < 0) ||
            put_key(r, index, child) < 0 || (bare ? put_leaf(r) : put_node(r)) < 0) {
            return -1;
        }
        first = 0;
    }
    return 0;
}

static int
put_node(Repr *r)
{
    uint32_t index = r->at++;
    const FjNode *node = &r->structure->nodes[index];
    const char *close = ")";
    PyObject *open = NULL;
    r->written++;
    switch (node->code) {
    case FJ_ARRAY:
        return put_leaf(r);
    case FJ_STATIC:
        return put_value(r, node->aux);
    case FJ_NONE:
        return put(r, PyUnicode_FromString("None"));
    case FJ_REF:
        return put(r, fj_structure_ref_text(r->structure, node));
    case FJ_TUPLE:
        open = PyUnicode_FromString("(");
        close = node->arity == 1 ? ",)" : ")";
        break;
    case FJ_LIST:
        open = PyUnicode_FromString("[");
        close = "]";
        break;
    case FJ_DICT:
        open = PyUnicode_FromString("{");
        close = "}";
        break;
    case FJ_ARGUMENTS:
        open = PyUnicode_FromString("(");
        break;
    default: {
        PyObject *name =
            PyObject_GetAttrString((PyObject *)r->structure->info[index].type, "__name__");
        open = name == NULL ? NULL : PyUnicode_FromFormat("%S(", name);
        Py_XDECREF(name);
    }
    }
    if (put(r, open) < 0) {
        return -1;
    }
    if (Py_EnterRecursiveCall(" in the repr of a Structure")) {
        return -1;
    }
    int result = put_children(r, index);
    Py_LeaveRecursiveCall();
    return result < 0 ? -1 : put(r, PyUnicode_FromString(close));
}

PyObject *
fj_structure_repr(PyObject *structure)
{
    PyObject *text = NULL;
    Repr r = {.structure = (FjStructure *)structure, .pieces = PyList_New(0)};
    PyObject *nothing = PyUnicode_FromString("");
    if (r.pieces != NULL && nothing != NULL &&
        put(&r, PyUnicode_FromString("Structure(")) == 0 && put_node(&r) == 0 &&
        put(&r, PyUnicode_FromString(")")) == 0) {
        text = PyUnicode_Join(nothing, r.pieces);
    }
    Py_XDECREF(r.pieces);
    Py_XDECREF(nothing);
    return text;
}
