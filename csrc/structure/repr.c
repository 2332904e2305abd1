/* The repr is written in one pass over the nodes.
 *
 * Python code can run in the reprs of keys and static values, and in the `__name__` of
 * classes. It cannot change the Structure.
 */
#include "structure/repr.h"

#include "structure/children.h"
#include "structure/paths.h"

#define MAX_CHILDREN 10   /* written for one node */
#define MAX_NODES 120     /* written in all */
#define MAX_CHARACTERS 60 /* written for one value */

typedef struct {
    FjStructure *structure;
    PyObject *pieces; /* list of str */
    Py_ssize_t leaf;  /* the number of leaves before it */
    int written;      /* the number of nodes written */
} Repr;

static int put_node(Repr *r, uint32_t index);

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

/* Whether the repr of a node shows the keys of its children. */
static int
shows_keys(const FjNode *node)
{
    return node->code != FJ_TUPLE && node->code != FJ_LIST && node->code != FJ_CUSTOM;
}

/* Writes `name=` or `key: `; nothing where a path leaves the step out. */
static int
put_key(Repr *r, const FjChildren *c)
{
    PyObject *key = fj_children_key(c);
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

/* Skips the children from `c` on, counting leaves, and writes how many they are. */
static int
put_omitted(Repr *r, const FjChildren *c)
{
    const FjStructure *structure = r->structure;
    uint32_t left = structure->nodes[c->parent].arity - c->number;
    r->leaf += fj_children_is_leaf(c) ? left : 0;
    for (uint32_t i = c->at; i < structure->info[c->parent].subtree_end; i++) {
        r->leaf += fj_node_leaves(&structure->nodes[i]);
    }
    return put(
        r, PyUnicode_FromFormat("%s... %u more", c->number == 0 ? "" : ", ", (unsigned)left));
}

static int
put_children(Repr *r, uint32_t index)
{
    const FjNode *nodes = r->structure->nodes;
    const char *separator = "";
    for (FjChildren c = fj_children_of(r->structure, index); fj_children_has(&c);
         fj_children_next(&c)) {
        int is_leaf = fj_children_is_leaf(&c);
        if (c.number == MAX_CHILDREN || r->written > MAX_NODES) {
            return put_omitted(r, &c);
        }
        if (!is_leaf && nodes[c.at].code == FJ_MISSING) {
            continue;
        }
        if (put(r, PyUnicode_FromString(separator)) < 0 ||
            (shows_keys(&nodes[index]) && put_key(r, &c) < 0) ||
            (is_leaf ? put_leaf(r) : put_node(r, c.at)) < 0) {
            return -1;
        }
        separator = ", ";
    }
    return 0;
}

static int
put_node(Repr *r, uint32_t index)
{
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
        return put(r, fj_path_text_of_ref(r->structure, node));
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
        put(&r, PyUnicode_FromString("Structure(")) == 0 && put_node(&r, 0) == 0 &&
        put(&r, PyUnicode_FromString(")")) == 0) {
        text = PyUnicode_Join(nothing, r.pieces);
    }
    Py_XDECREF(r.pieces);
    Py_XDECREF(nothing);
    return text;
}
