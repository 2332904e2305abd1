/* Collects paths in one pass.  Python code can run in the __str__ of keys, which can't change
 * the Structure. */
#include "structure/paths.h"

/* One level of the walk. */
typedef struct {
    FjChildren next;
    PyObject *above; /* the path of the node, owned */
} Level;

typedef struct {
    const FjStructure *structure;
    FjPathsWhat what;
    Level *levels; /* the root first */
    size_t depth;
    size_t capacity;
    Py_ssize_t leaf; /* number of the next leaf */
    PyObject *paths; /* a list */
} Walk;

/* (P) Returns the path of a child.  `above` is the path of its parent.  Steals `key` (NULL: an
 * earlier error).
 *
 * The text path of a node with children ends with a dot, unless it is empty. */
static PyObject *
path_below(const Walk *w, PyObject *above, PyObject *key, int has_children)
{
    PyObject *path = NULL;
    if (key != NULL && w->what != FJ_PATHS_TEXT) {
        path = PyList_GetSlice(above, 0, PyList_GET_SIZE(above));
        if (path != NULL && key != Py_None && PyList_Append(path, key) < 0) {
            Py_CLEAR(path);
        }
    }
    else if (key == Py_None) {
        Py_ssize_t size = PyUnicode_GET_LENGTH(above);
        path = has_children || size == 0 ? Py_NewRef(above)
                                         : PyUnicode_Substring(above, 0, size - 1);
    }
    else if (key != NULL) {
        PyObject *item = PyTuple_Check(key) ? PyTuple_GET_ITEM(key, 0) : key;
        PyObject *text = PyUnicode_CheckExact(item) ? Py_NewRef(item) : PyObject_Str(item);
        path = text == NULL   ? NULL
               : has_children ? PyUnicode_FromFormat("%U%U.", above, text)
                              : PyUnicode_Concat(above, text);
        Py_XDECREF(text);
    }
    Py_XDECREF(key);
    return path;
}

/* True if the walk collects the next leaf's path.  Advances to the leaf after it. */
static int
takes_leaf(Walk *w)
{
    Py_ssize_t leaf = w->leaf++;
    return w->what != FJ_PATHS_NODES && fj_structure_static_leaf(w->structure, leaf) == NULL;
}

/* (P) Visits the children of a node with FJ_NODE_LEAVES. */
static int
visit_leaves(Walk *w, uint32_t index, PyObject *above)
{
    int result = 0;
    for (FjChildren c = fj_children_of(w->structure, index);
         result == 0 && fj_children_has(&c); fj_children_next(&c)) {
        if (takes_leaf(w)) {
            result = fj_list_take(w->paths, path_below(w, above, fj_children_key(&c), 0));
        }
    }
    return result;
}

/* Descends into the node at `index`.  Steals `above`, its path. */
static int
push_level(Walk *w, uint32_t index, PyObject *above)
{
    if (w->depth == w->capacity) {
        size_t capacity = 2 * w->capacity + 16;
        Level *levels = PyMem_Realloc(w->levels, capacity * sizeof(Level));
        if (levels == NULL) {
            Py_DECREF(above);
            PyErr_NoMemory();
            return -1;
        }
        w->levels = levels;
        w->capacity = capacity;
    }
    w->levels[w->depth++] = (Level){fj_children_of(w->structure, index), above};
    return 0;
}

/* (P) Visits a child of the node with the path `above`, or the root if that is NULL. */
static int
visit(Walk *w, const FjChildren *c, PyObject *above)
{
    uint32_t index = above == NULL ? 0 : c->at;
    const FjNode *node = &w->structure->nodes[index];
    int is_taken = node->code == FJ_ARRAY ? takes_leaf(w) : 0, result = 0;
    is_taken |= w->what == FJ_PATHS_NODES;
    if (!is_taken && node->arity == 0) {
        return 0;
    }
    PyObject *path = above != NULL ? path_below(w, above, fj_children_key(c), node->arity > 0)
                     : w->what == FJ_PATHS_TEXT ? PyUnicode_FromString("")
                                                : PyList_New(0);
    if (path == NULL) {
        return -1;
    }
    if (is_taken) {
        result = PyList_Append(w->paths, path);
    }
    if (result == 0 && (node->flags & FJ_NODE_LEAVES)) {
        result = visit_leaves(w, index, path);
    }
    else if (result == 0 && node->arity > 0) {
        return push_level(w, index, path);
    }
    Py_DECREF(path);
    return result;
}

PyObject *
fj_paths(const FjStructure *structure, FjPathsWhat what)
{
    Walk w = {.structure = structure, .what = what, .paths = PyList_New(0)};
    int result = w.paths == NULL ? -1 : visit(&w, NULL, NULL);
    while (w.depth > 0) {
        Level *level = &w.levels[w.depth - 1];
        if (result == 0 && fj_children_has(&level->next)) {
            FjChildren c = level->next;
            fj_children_next(&level->next);
            result = visit(&w, &c, level->above);
        }
        else {
            w.depth--;
            Py_DECREF(level->above);
        }
    }
    PyMem_Free(w.levels);
    if (result < 0) {
        Py_CLEAR(w.paths);
    }
    return w.paths;
}
