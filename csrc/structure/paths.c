/* Collects paths in one pass.  Python code can run in the __str__ of keys, which can't change
 * the Structure. */
#include "structure/paths.h"

typedef struct {
    const FjStructure *structure;
    PyObject *dot;   /* joins the keys to text; or NULL */
    PyObject *paths; /* a list */
} Walk;

/* Adds the path of a leaf: a list of keys, or of their texts. */
static int
add_path(const Walk *w, PyObject *path)
{
    return w->dot == NULL ? PyList_Append(w->paths, path)
                          : fj_list_steal(w->paths, PyUnicode_Join(w->dot, path));
}

/* (P) Returns the path of a child, given its parent's. */
static PyObject *
path_below(const Walk *w, PyObject *above, const FjChildren *c)
{
    PyObject *key = fj_children_key(c);
    PyObject *path = key == NULL ? NULL : PyList_GetSlice(above, 0, PyList_GET_SIZE(above));
    if (path != NULL && key != Py_None) {
        int result = w->dot == NULL ? PyList_Append(path, key)
                     : PyTuple_Check(key)
                         ? fj_list_steal(path, PyObject_Str(PyTuple_GET_ITEM(key, 0)))
                         : fj_list_steal(path, PyObject_Str(key));
        if (result < 0) {
            Py_CLEAR(path);
        }
    }
    Py_XDECREF(key);
    return path;
}

/* (P) Visits the children of the node at `index`, which has the path `above`. */
static int
visit_children(Walk *w, uint32_t index, PyObject *above)
{
    int result = 0;
    if (Py_EnterRecursiveCall(" while collecting the paths of a pytree")) {
        return -1;
    }
    for (FjChildren c = fj_children_of(w->structure, index);
         result == 0 && fj_children_has(&c); fj_children_next(&c)) {
        const FjNode *node = &w->structure->nodes[c.at];
        int is_leaf = node->code == FJ_ARRAY;
        if (!is_leaf && node->arity == 0) {
            continue;
        }
        PyObject *path = path_below(w, above, &c);
        result = path == NULL ? -1
                 : is_leaf    ? add_path(w, path)
                              : visit_children(w, c.at, path);
        Py_XDECREF(path);
    }
    Py_LeaveRecursiveCall();
    return result;
}

PyObject *
fj_paths(const FjStructure *structure, int as_text)
{
    Walk w = {.structure = structure,
              .dot = as_text ? PyUnicode_FromString(".") : NULL,
              .paths = PyList_New(0)};
    PyObject *root = PyList_New(0);
    int result = w.paths == NULL || root == NULL || (as_text && w.dot == NULL) ? -1 : 0;
    if (result == 0) {
        result = structure->nodes[0].code == FJ_ARRAY ? add_path(&w, root)
                                                      : visit_children(&w, 0, root);
    }
    Py_XDECREF(root);
    Py_XDECREF(w.dot);
    if (result < 0) {
        Py_CLEAR(w.paths);
    }
    return w.paths;
}
