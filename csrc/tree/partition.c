/* Splitting a tree into parts and combining parts into a tree.
 *
 * A tree is flattened once, and a tree is built for each part from the same Structure.
 *
 * Python code can run in filters and `is_leaf`, where tree_functions.c, filter.c and paths.c
 * say, in the __eq__ of keys that are not str in a group, in the repr of such keys, and where
 * references are dropped.  A buffer holds the leaves meanwhile.
 */
#include "tree/partition.h"

#include "structure/paths.h"
#include "walk/build.h"
#include "tree/filter.h"
#include "tree/tree_functions.h"

#define MAX_PATHS_SHOWN 10 /* in an error */

/* ---- partition ---- */

/* A new tuple with the tree of each group. */
static PyObject *
build_parts(FjStructure *structure, const FjLeafBuf *leaves, const int16_t *groups,
            Py_ssize_t count, PyObject *replace)
{
    PyObject *parts = fj_hide(PyTuple_New(count)); /* `count` is at least 1 */
    for (Py_ssize_t group = 0; parts != NULL && group < count; group++) {
        FjPart part = {.leaves = leaves->items,
                       .groups = groups,
                       .group = (int16_t)group,
                       .replace = replace};
        PyObject *tree = fj_build_part(structure, &part);
        if (tree == NULL) {
            Py_CLEAR(parts);
            break;
        }
        PyTuple_SET_ITEM(parts, group, tree);
    }
    if (parts != NULL) {
        fj_show(parts);
    }
    return parts;
}

/* (tree, expressions, is_leaf, replace) */
static PyObject *
partition(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    int16_t *groups =
        fj_filter_groups(structure, args[0], args[2], leaves->items, NULL, args[1]);
    PyObject *parts = groups == NULL ? NULL
                                     : build_parts(structure, leaves, groups,
                                                   PyTuple_GET_SIZE(args[1]) + 1, args[3]);
    PyMem_Free(groups);
    return parts;
}

PyObject *
fj_partition(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {
        .usage = "(registry, tree, expressions, is_leaf, replace)",
        .argument_count = 4,
        .tree_argument = 0,
        .is_leaf_argument = 2,
        .apply = partition};
    return fj_tree_call(module, args, nargs, &function);
}

/* (tree, expression, is_leaf) */
static PyObject *
mask(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *expressions = PyTuple_Pack(1, args[1]);
    PyObject *result = NULL;
    if (expressions == NULL) {
        return NULL;
    }
    int16_t *groups =
        fj_filter_groups(structure, args[0], args[2], leaves->items, NULL, expressions);
    if (groups != NULL && (result = PyBytes_FromStringAndSize(NULL, leaves->count)) != NULL) {
        for (Py_ssize_t i = 0; i < leaves->count; i++) {
            PyBytes_AS_STRING(result)[i] = groups[i] == 0;
        }
    }
    PyMem_Free(groups);
    Py_DECREF(expressions);
    return result;
}

PyObject *
fj_partition_mask(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {.usage = "(registry, tree, expression, is_leaf)",
                                            .argument_count = 3,
                                            .tree_argument = 0,
                                            .is_leaf_argument = 2,
                                            .apply = mask};
    return fj_tree_call(module, args, nargs, &function);
}

/* ---- combine ---- */

/* Raises a ValueError: the trees of two indices have a leaf in the same place.  Always -1. */
static int
raise_leaf_in_two_trees(FjStructure *structure, Py_ssize_t leaf, Py_ssize_t first,
                        Py_ssize_t second)
{
    PyObject *path = fj_path_text(fj_path_of_leaf(structure, leaf));
    if (path != NULL) {
        PyErr_Format(PyExc_ValueError, "%U is in tree %zd and in tree %zd", path, first + 1,
                     second + 1);
    }
    Py_XDECREF(path);
    return -1;
}

/* Chooses the leaves of the combined tree.  The buffer holds the leaves of `width` trees, tree
 * after tree; of the leaves in one place, the first that is not None is swapped into the first
 * tree's part of the buffer, which still owns all of them.  0, or -1 with an error: with
 * `strict`, a ValueError if two trees have a leaf in the same place. */
static int
choose_leaves(FjStructure *structure, FjLeafBuf *leaves, Py_ssize_t width, int strict)
{
    Py_ssize_t count = structure->all_leaves;
    PyObject **items = leaves->items;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t found = items[i] == Py_None ? -1 : 0;
        for (Py_ssize_t j = 1; j < width && (strict || found < 0); j++) {
            if (items[j * count + i] == Py_None) {
                continue;
            }
            if (found >= 0) {
                return raise_leaf_in_two_trees(structure, i, found, j);
            }
            found = j;
        }
        if (found > 0) {
            PyObject *none = items[i];
            items[i] = items[found * count + i];
            items[found * count + i] = none;
        }
    }
    return 0;
}

/* (trees, is_leaf, strict) */
static PyObject *
combine(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    int strict = args[2] == Py_True;
    return choose_leaves(structure, leaves, PyTuple_GET_SIZE(args[0]), strict) < 0
               ? NULL
               : fj_build_tree(structure, leaves->items);
}

PyObject *
fj_partition_combine(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {.usage = "(registry, trees, is_leaf, strict)",
                                            .argument_count = 3,
                                            .tree_argument = 0,
                                            .is_leaf_argument = 1,
                                            .takes_trees = 1,
                                            .none_is_leaf = 1,
                                            .apply = combine};
    return fj_tree_call(module, args, nargs, &function);
}

/* ---- dicts from path to leaf ---- */

/* A new tuple (structure, dict, ...), with a dict from path to leaf for each group. */
static PyObject *
build_dicts(FjStructure *structure, const FjLeafBuf *leaves, const int16_t *groups,
            Py_ssize_t count)
{
    PyObject *paths = fj_paths_open(structure); /* borrowed from the structure */
    PyObject *result = paths == NULL ? NULL : fj_hide(PyTuple_New(count + 1));
    if (result == NULL) {
        return NULL;
    }
    PyTuple_SET_ITEM(result, 0, Py_NewRef((PyObject *)structure));
    for (Py_ssize_t group = 0; group < count; group++) {
        PyObject *dict = PyDict_New();
        if (dict == NULL) {
            Py_DECREF(result);
            return NULL;
        }
        PyTuple_SET_ITEM(result, group + 1, dict);
    }
    for (Py_ssize_t i = 0, given = 0; i < structure->all_leaves; i++) {
        if (groups[i] < 0) {
            continue;
        }
        PyObject *dict = PyTuple_GET_ITEM(result, groups[i] + 1);
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(paths, given++), leaves->items[i]) < 0) {
            Py_DECREF(result);
            return NULL;
        }
    }
    fj_show((PyObject *)structure);
    fj_show(result);
    return result;
}

/* 0, or -1 with a ValueError if two open leaves have the same path. */
static int
check_paths_differ(FjStructure *structure)
{
    PyObject *paths = fj_paths_open(structure);
    PyObject *seen = paths == NULL ? NULL : PySet_New(NULL);
    int result = seen == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_GET_SIZE(paths); i++) {
        if (PySet_Add(seen, PyTuple_GET_ITEM(paths, i)) < 0) {
            result = -1;
        }
        else if (PySet_GET_SIZE(seen) != i + 1) {
            PyErr_Format(PyExc_ValueError,
                         "two leaves have the path %R: their keys look the same as text",
                         PyTuple_GET_ITEM(paths, i));
            result = -1;
        }
    }
    Py_XDECREF(seen);
    return result;
}

/* (tree, candidates, expressions, is_leaf) */
static PyObject *
partition_dict(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    PyObject *result = NULL;
    int16_t *groups =
        fj_filter_groups(structure, args[0], args[3], leaves->items, args[1], args[2]);
    if (groups != NULL && fj_tree_make_static(structure, leaves->items, groups) == 0 &&
        check_paths_differ(structure) == 0) {
        result = build_dicts(structure, leaves, groups, PyTuple_GET_SIZE(args[2]) + 1);
    }
    PyMem_Free(groups);
    return result;
}

PyObject *
fj_partition_dict(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeFunction function = {
        .usage = "(registry, tree, candidates, expressions, is_leaf)",
        .argument_count = 4,
        .tree_argument = 0,
        .is_leaf_argument = 3,
        .apply = partition_dict};
    return fj_tree_call(module, args, nargs, &function);
}

/* The paths with which the groups do not fit the Structure: three owned lists. */
typedef struct {
    PyObject *missing;    /* in no group */
    PyObject *unknown;    /* keys of a group that are no path */
    PyObject *duplicates; /* in more than one group */
} PathErrors;

/* "; missing: ['a', 'b'] and 3 more", or "" if there are no paths; NULL with an error. */
static PyObject *
format_paths(const char *what, PyObject *paths)
{
    Py_ssize_t count = PyList_GET_SIZE(paths);
    if (count == 0) {
        return PyUnicode_FromString("");
    }
    PyObject *shown = PyList_GetSlice(paths, 0, MAX_PATHS_SHOWN);
    PyObject *text = NULL;
    if (shown != NULL) {
        text = count > MAX_PATHS_SHOWN ? PyUnicode_FromFormat("; %s: %R and %zd more", what,
                                                              shown, count - MAX_PATHS_SHOWN)
                                       : PyUnicode_FromFormat("; %s: %R", what, shown);
    }
    Py_XDECREF(shown);
    return text;
}

/* 0 if there are no errors, or -1 with a ValueError that lists them. */
static int
raise_path_errors(const PathErrors *errors)
{
    if (PyList_GET_SIZE(errors->missing) + PyList_GET_SIZE(errors->unknown) +
            PyList_GET_SIZE(errors->duplicates) ==
        0) {
        return 0;
    }
    /* The reprs of unknown keys are Python code, which must not run after an error. */
    PyObject *missing = format_paths("missing", errors->missing);
    PyObject *unknown = missing == NULL ? NULL : format_paths("unknown", errors->unknown);
    PyObject *duplicates =
        unknown == NULL ? NULL : format_paths("in more than one group", errors->duplicates);
    if (duplicates != NULL) {
        PyErr_Format(PyExc_ValueError, "the groups do not fit the structure%U%U%U", missing,
                     unknown, duplicates);
    }
    Py_XDECREF(missing);
    Py_XDECREF(unknown);
    Py_XDECREF(duplicates);
    return -1;
}

/* Pushes the leaf of `path`, or None if no group has it.  The number of groups that have it,
 * or -1 with an error. */
static int
push_leaf(PyObject *path, PyObject *const *groups, Py_ssize_t count, FjLeafBuf *leaves)
{
    PyObject *found = NULL;
    int times = 0;
    for (Py_ssize_t j = 0; j < count; j++) {
        PyObject *leaf = PyDict_GetItemWithError(groups[j], path);
        if (leaf != NULL) {
            Py_XSETREF(found, Py_NewRef(leaf));
            times++;
        }
        else if (PyErr_Occurred()) {
            Py_XDECREF(found);
            return -1;
        }
    }
    int result = fj_leafbuf_push(leaves, found == NULL ? Py_None : found);
    Py_XDECREF(found);
    return result < 0 ? -1 : times;
}

/* Appends to `unknown` each key of a group that is not in `paths`.  0, or -1 with an error. */
static int
find_unknown(PyObject *paths, PyObject *const *groups, Py_ssize_t count, PyObject *unknown)
{
    PyObject *path_set = PySet_New(paths);
    int result = path_set == NULL ? -1 : 0;
    for (Py_ssize_t j = 0; result == 0 && j < count; j++) {
        PyObject *keys = PyDict_Keys(groups[j]);
        result = keys == NULL ? -1 : 0;
        for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(keys); i++) {
            int is_path = PySet_Contains(path_set, PyList_GET_ITEM(keys, i));
            result = is_path != 0 ? (is_path < 0 ? -1 : 0)
                                  : PyList_Append(unknown, PyList_GET_ITEM(keys, i));
        }
        Py_XDECREF(keys);
    }
    Py_XDECREF(path_set);
    return result;
}

/* Pushes the leaf of each path.  0, or -1 with an error: a ValueError if the groups do not
 * have exactly one leaf for each path. */
static int
push_leaves(PyObject *paths, PyObject *const *groups, Py_ssize_t count, FjLeafBuf *leaves,
            const PathErrors *errors)
{
    Py_ssize_t total = 0, found = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(paths); i++) {
        PyObject *path = PyTuple_GET_ITEM(paths, i);
        int times = push_leaf(path, groups, count, leaves);
        if (times < 0 || (times == 0 && PyList_Append(errors->missing, path) < 0) ||
            (times > 1 && PyList_Append(errors->duplicates, path) < 0)) {
            return -1;
        }
        found += times;
    }
    for (Py_ssize_t j = 0; j < count; j++) {
        total += PyDict_GET_SIZE(groups[j]);
    }
    if (total != found && find_unknown(paths, groups, count, errors->unknown) < 0) {
        return -1;
    }
    return raise_path_errors(errors);
}

PyObject *
fj_partition_combine_dicts(PyObject *op, PyObject *const *groups, Py_ssize_t count)
{
    FjStructure *structure = (FjStructure *)op;
    PyObject *tree = NULL;
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf leaves;
    for (Py_ssize_t j = 0; j < count; j++) {
        if (!PyDict_Check(groups[j])) {
            PyErr_Format(PyExc_TypeError,
                         "group %zd is a `%s`: it has to be a dict from path to leaf", j + 1,
                         Py_TYPE(groups[j])->tp_name);
            return NULL;
        }
    }
    fj_leafbuf_init(&leaves, room, FJ_LEAFBUF_FEW);
    /* The paths come first, since writing them may run Python code, which must not run after
     * an error. */
    PyObject *paths = Py_XNewRef(fj_paths_open(structure));
    PathErrors errors = {NULL, NULL, NULL};
    if (paths != NULL && (errors.missing = PyList_New(0)) != NULL &&
        (errors.unknown = PyList_New(0)) != NULL &&
        (errors.duplicates = PyList_New(0)) != NULL &&
        push_leaves(paths, groups, count, &leaves, &errors) == 0) {
        tree = fj_build_open(structure, leaves.items);
    }
    Py_XDECREF(paths);
    Py_XDECREF(errors.missing);
    Py_XDECREF(errors.unknown);
    Py_XDECREF(errors.duplicates);
    fj_leafbuf_clear(&leaves);
    return tree;
}
