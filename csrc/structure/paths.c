/* The paths are written in one pass over the nodes, in which each container passes its own
 * path and a dot to its children as their prefix.
 *
 * Python code can run in the __str__ of the keys of dicts and of custom nodes, and in the
 * `_fields` of a named tuple.  It cannot change the Structure.
 */
#include "structure/paths.h"

typedef struct {
    FjStructure *structure;
    uint32_t at;     /* the index of the next node */
    Py_ssize_t leaf; /* the number of leaves before it */
    int all;         /* write the paths of static leaves too */
    PyObject *paths; /* list */
} Writer;

static int write_node(Writer *w, PyObject *path, PyObject *prefix);

/* Advances to the next leaf.  Returns whether to write the path of the one before. */
static int
is_wanted(Writer *w)
{
    Py_ssize_t leaf = w->leaf++;
    return w->all || fj_structure_static_leaf(w->structure, leaf) == NULL;
}

/* (P) `prefix` followed by the str of `key`; a new reference. */
static PyObject *
join(PyObject *prefix, PyObject *key)
{
    PyObject *text = PyUnicode_CheckExact(key) ? Py_NewRef(key) : PyObject_Str(key);
    PyObject *path = text == NULL ? NULL : PyUnicode_Concat(prefix, text);
    Py_XDECREF(text);
    return path;
}

/* The leaves of a node with FJ_NODE_LEAVES. */
static int
write_leaves(Writer *w, PyObject *prefix, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!is_wanted(w)) {
            continue;
        }
        PyObject *position = PyLong_FromUnsignedLong(i);
        PyObject *path = position == NULL ? NULL : join(prefix, position);
        Py_XDECREF(position);
        if (fj_list_take(w->paths, path) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Writes the paths of a child; `path` and `prefix` are those of its parent. */
static int
write_child(Writer *w, uint32_t index, uint32_t child, PyObject *path, PyObject *prefix)
{
    const FjNode *node = &w->structure->nodes[w->at];
    if (node->code == FJ_STATIC || node->code == FJ_MISSING || node->code == FJ_NONE ||
        node->code == FJ_REF) {
        w->at++;
        return 0;
    }
    if (fj_node_skips_key(&w->structure->nodes[index], child)) {
        return write_node(w, path, prefix);
    }
    PyObject *key = fj_structure_key(w->structure, index, child);
    PyObject *below =
        key == NULL ? NULL : join(prefix, PyTuple_Check(key) ? PyTuple_GET_ITEM(key, 0) : key);
    PyObject *prefix_below = below == NULL ? NULL : PyUnicode_FromFormat("%U.", below);
    int result = prefix_below == NULL ? -1 : write_node(w, below, prefix_below);
    Py_XDECREF(key);
    Py_XDECREF(below);
    Py_XDECREF(prefix_below);
    return result;
}

/* Writes the paths of a node, and of all below it.  `path` is its own path, `prefix` what the
 * keys of its children follow: the path and a dot, or nothing for the root. */
static int
write_node(Writer *w, PyObject *path, PyObject *prefix)
{
    uint32_t index = w->at++;
    const FjNode *node = &w->structure->nodes[index];
    if (node->code == FJ_ARRAY) {
        return is_wanted(w) ? PyList_Append(w->paths, path) : 0;
    }
    if (node->flags & FJ_NODE_LEAVES) {
        return write_leaves(w, prefix, node->arity);
    }
    if (Py_EnterRecursiveCall(" while writing the paths of a tree")) {
        return -1;
    }
    int result = 0;
    for (uint32_t child = 0; result == 0 && child < node->arity; child++) {
        result = write_child(w, index, child, path, prefix);
    }
    Py_LeaveRecursiveCall();
    return result;
}

static PyObject *
write_all(FjStructure *structure, int all)
{
    Writer w = {.structure = structure, .all = all, .paths = PyList_New(0)};
    PyObject *root = PyUnicode_FromString("");
    if (w.paths != NULL && (root == NULL || write_node(&w, root, root) < 0)) {
        Py_CLEAR(w.paths);
    }
    Py_XDECREF(root);
    return w.paths;
}

PyObject *
fj_paths_all(FjStructure *structure)
{
    return write_all(structure, 1);
}

PyObject *
fj_paths_open(FjStructure *structure)
{
    if (structure->paths == NULL) {
        PyObject *list = write_all(structure, 0);
        PyObject *paths = list == NULL ? NULL : PyList_AsTuple(list);
        Py_XDECREF(list);
        if (paths == NULL) {
            return NULL;
        }
        if (structure->paths == NULL) {
            structure->paths = paths;
        }
        else {
            Py_DECREF(paths); /* a key's __str__ asked for the same paths */
        }
    }
    return structure->paths;
}
