/* Paths to the nodes and leaves of a Structure.
 *
 * Python code can run in the __str__ and __repr__ of the keys of dicts and of custom nodes. It
 * cannot change the Structure.
 */
#include "structure/paths.h"

#include "structure/children.h"

/* ---- one path ---- */

/* Appends `key`, which is stolen, to the list `*path`, unless it is None.  With an error,
 * `*path` is set to NULL; `key` may be NULL with an error. */
static void
extend_path(PyObject **path, PyObject *key)
{
    if (key == Py_None) {
        Py_DECREF(key);
    }
    else if (fj_list_take(*path, key) < 0) {
        Py_CLEAR(*path);
    }
}

PyObject *
fj_path_of_node(const FjStructure *self, uint32_t target)
{
    PyObject *path = PyList_New(0);
    for (uint32_t at = 0; path != NULL && at != target;) {
        FjChildren c = fj_children_of(self, at);
        /* A child that is not closed has subtree_end 0; the target is below it. */
        while (self->info[c.at].subtree_end != 0 && self->info[c.at].subtree_end <= target) {
            fj_children_next(&c);
        }
        extend_path(&path, fj_children_key(&c));
        at = c.at;
    }
    return path;
}

PyObject *
fj_path_of_leaf(const FjStructure *self, Py_ssize_t leaf)
{
    uint32_t i = 0;
    for (; i < self->count; i++) {
        Py_ssize_t here = fj_node_leaves(&self->nodes[i]);
        if (leaf < here) {
            break;
        }
        leaf -= here;
    }
    PyObject *path = fj_path_of_node(self, i);
    if (path != NULL && self->nodes[i].code != FJ_ARRAY) {
        extend_path(&path, Py_BuildValue("(n)", leaf));
    }
    return path;
}

PyObject *
fj_path_text(PyObject *path)
{
    if (path == NULL) {
        return NULL;
    }
    int is_root = PyList_GET_SIZE(path) == 0;
    PyObject *text = PyUnicode_FromString(is_root ? "the root" : "`");
    for (Py_ssize_t i = 0; text != NULL && i < PyList_GET_SIZE(path); i++) {
        PyObject *key = PyList_GET_ITEM(path, i);
        PyObject *longer = PyTuple_Check(key) && PyTuple_GET_SIZE(key) == 1
                               ? PyUnicode_FromFormat("%U[%R]", text, PyTuple_GET_ITEM(key, 0))
                               : PyUnicode_FromFormat(i > 0 ? "%U.%S" : "%U%S", text, key);
        Py_SETREF(text, longer);
    }
    if (text != NULL && !is_root) {
        Py_SETREF(text, PyUnicode_FromFormat("%U`", text));
    }
    Py_DECREF(path);
    return text;
}

PyObject *
fj_path_text_of_ref(const FjStructure *self, const FjNode *ref)
{
    uint32_t number = fj_node_number(ref), index = 0;
    for (; index < self->count; index++) {
        const FjNode *node = &self->nodes[index];
        if ((node->flags & FJ_NODE_IDENTITY) && number-- == 0) {
            break;
        }
    }
    return fj_path_text(fj_path_of_node(self, index));
}

/* ---- the paths of all leaves, in one pass ---- */

typedef struct {
    const FjStructure *structure;
    Py_ssize_t leaf; /* the number of leaves before the next one */
    int all;         /* write the paths of static leaves too */
    PyObject *paths; /* list */
} Writer;

/* Advances to the next leaf.  Returns whether to write the path of the one before. */
static int
is_wanted(Writer *w)
{
    Py_ssize_t leaf = w->leaf++;
    return w->all || fj_structure_static_leaf(w->structure, leaf) == NULL;
}

/* (P) `prefix` followed by the str of `key`, which is stolen; NULL is an error that is passed
 * on.  A new reference. */
static PyObject *
join(PyObject *prefix, PyObject *key)
{
    PyObject *item = key != NULL && PyTuple_Check(key) ? PyTuple_GET_ITEM(key, 0) : key;
    PyObject *text = item == NULL                 ? NULL
                     : PyUnicode_CheckExact(item) ? Py_NewRef(item)
                                                  : PyObject_Str(item);
    PyObject *path = text == NULL ? NULL : PyUnicode_Concat(prefix, text);
    Py_XDECREF(text);
    Py_XDECREF(key);
    return path;
}

static int write_children(Writer *w, uint32_t index, PyObject *path, PyObject *prefix);

/* Writes the paths at a child; `path` and `prefix` are those of its parent. */
static int
write_child(Writer *w, const FjChildren *c, PyObject *path, PyObject *prefix)
{
    const FjNode *node = &w->structure->nodes[c->at];
    int is_leaf = fj_children_is_leaf(c) || node->code == FJ_ARRAY;
    if (is_leaf ? !is_wanted(w) : node->arity == 0) {
        return 0;
    }
    PyObject *key = fj_children_key(c);
    if (key == Py_None) {
        Py_DECREF(key);
        return is_leaf ? PyList_Append(w->paths, path)
                       : write_children(w, c->at, path, prefix);
    }
    PyObject *below = join(prefix, key);
    if (is_leaf) {
        return fj_list_take(w->paths, below);
    }
    PyObject *prefix_below = below == NULL ? NULL : PyUnicode_FromFormat("%U.", below);
    int result = prefix_below == NULL ? -1 : write_children(w, c->at, below, prefix_below);
    Py_XDECREF(below);
    Py_XDECREF(prefix_below);
    return result;
}

/* Writes the paths of the leaves below the node at `index`, whose own path is `path`.  The
 * keys of its children follow `prefix`: the path and a dot, or nothing for the root. */
static int
write_children(Writer *w, uint32_t index, PyObject *path, PyObject *prefix)
{
    int result = 0;
    if (Py_EnterRecursiveCall(" while writing the paths of a tree")) {
        return -1;
    }
    for (FjChildren c = fj_children_of(w->structure, index);
         result == 0 && fj_children_has(&c); fj_children_next(&c)) {
        result = write_child(w, &c, path, prefix);
    }
    Py_LeaveRecursiveCall();
    return result;
}

static PyObject *
write_all(const FjStructure *structure, int all)
{
    Writer w = {.structure = structure, .all = all, .paths = PyList_New(0)};
    PyObject *root = PyUnicode_FromString("");
    int result = root == NULL || w.paths == NULL        ? -1
                 : structure->nodes[0].code != FJ_ARRAY ? write_children(&w, 0, root, root)
                 : is_wanted(&w)                        ? PyList_Append(w.paths, root)
                                                        : 0;
    if (result < 0) {
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
