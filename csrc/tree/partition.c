/* A tree comes apart once, and is built once for each part, with other leaves left in.
 *
 * Python code can run in filters and `is_leaf`, in what tree_functions.c and filter.c say, in
 * the == of keys of a group that are not str, and where references are dropped.  Leaves are
 * held meanwhile.
 */
#include "tree/partition.h"

#include "walk/build.h"
#include "structure/paths.h"
#include "tree/filter.h"
#include "tree/tree_functions.h"

#define MOST_LISTED 10 /* paths in an error */

/* The groups of all leaves; NULL with an error.  To be freed by PyMem_Free. */
static int16_t *
select_groups(FjStructure *structure, PyObject *tree, PyObject *is_leaf,
              const FjLeafBuf *leaves, PyObject *candidates, PyObject *expressions)
{
    if (!PyTuple_Check(expressions) || PyTuple_GET_SIZE(expressions) >= INT16_MAX) {
        PyErr_SetString(PyExc_TypeError, "the expressions are a tuple of less than 32,767");
        return NULL;
    }
    int16_t *groups = PyMem_New(int16_t, (size_t)structure->all_leaves + 1);
    if (groups == NULL) {
        PyErr_NoMemory();
    }
    else if (fj_filter_groups(structure, tree, is_leaf, leaves->items, candidates, expressions,
                              groups) < 0) {
        PyMem_Free(groups);
        groups = NULL;
    }
    return groups;
}

/* ---- partition ---- */

/* The trees, one for each group, as a new tuple. */
static PyObject *
build_parts(FjStructure *structure, const FjLeafBuf *leaves, const int16_t *groups,
            Py_ssize_t count, PyObject *replace)
{
    PyObject *parts = PyTuple_New(count);
    for (Py_ssize_t group = 0; parts != NULL && group < count; group++) {
        FjPart part = {leaves->items, groups, (int16_t)group, replace};
        PyObject *tree = fj_build_part(structure, &part);
        if (tree == NULL) {
            Py_CLEAR(parts);
            break;
        }
        PyTuple_SET_ITEM(parts, group, tree);
    }
    return parts;
}

/* (tree, expressions, is_leaf, replace) */
static PyObject *
partition(FjStructure *structure, FjLeafBuf *leaves, PyObject *const *args)
{
    int16_t *groups = select_groups(structure, args[0], args[2], leaves, NULL, args[1]);
    PyObject *parts = groups == NULL ? NULL
                                     : build_parts(structure, leaves, groups,
                                                   PyTuple_GET_SIZE(args[1]) + 1, args[3]);
    PyMem_Free(groups);
    return parts;
}

PyObject *
fj_partition(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeUse use = {
        "(registry, tree, expressions, is_leaf, replace)", 4, 0, 2, 0, 0, partition};
    return fj_tree_call(module, args, nargs, &use);
}

/* ---- combine ---- */

static int
complain_of_doubled(FjStructure *structure, Py_ssize_t leaf, Py_ssize_t first,
                    Py_ssize_t second)
{
    PyObject *path = fj_structure_leaf_path(structure, leaf);
    PyObject *text = path == NULL ? NULL : fj_structure_write_path(path);
    if (text != NULL) {
        PyErr_Format(PyExc_ValueError, "%U is in tree %zd and in tree %zd", text, first + 1,
                     second + 1);
    }
    Py_XDECREF(path);
    Py_XDECREF(text);
    return -1;
}

/* Moves what is not None to the front: `leaves[i]` is then the one that counts.  It stays
 * owned by the buffer. */
static int
choose(FjStructure *structure, FjLeafBuf *leaves, Py_ssize_t width, int strict)
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
                return complain_of_doubled(structure, i, found, j);
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
    return choose(structure, leaves, PyTuple_GET_SIZE(args[0]), strict) < 0
               ? NULL
               : fj_build_tree(structure, leaves->items);
}

PyObject *
fj_partition_combine(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeUse use = {
        "(registry, trees, is_leaf, strict)", 3, 0, 1, 1, 1, combine};
    return fj_tree_call(module, args, nargs, &use);
}

/* ---- dicts of paths ---- */

/* The leaves of each group under their paths: (structure, dict, ...), a new tuple. */
static PyObject *
build_dicts(FjStructure *structure, const FjLeafBuf *leaves, const int16_t *groups,
            Py_ssize_t count)
{
    PyObject *paths = fj_paths_open(structure); /* borrowed from it */
    PyObject *result = paths == NULL ? NULL : PyTuple_New(count + 1);
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
    return result;
}

/* 0, or -1 with a ValueError where two leaves have one path. */
static int
check_paths(FjStructure *structure)
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
    int16_t *groups = select_groups(structure, args[0], args[3], leaves, args[1], args[2]);
    if (groups != NULL && fj_tree_make_static(structure, leaves->items, groups) == 0 &&
        check_paths(structure) == 0) {
        result = build_dicts(structure, leaves, groups, PyTuple_GET_SIZE(args[2]) + 1);
    }
    PyMem_Free(groups);
    return result;
}

PyObject *
fj_partition_dict(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    static const FjTreeUse use = {
        "(registry, tree, candidates, expressions, is_leaf)", 4, 0, 3, 0, 0, partition_dict};
    return fj_tree_call(module, args, nargs, &use);
}

/* Which paths are wrong, and how: three lists. */
typedef struct {
    PyObject *missing;
    PyObject *unknown;
    PyObject *doubled;
} Complaint;

/* `; missing: a, b and 3 more`, or nothing; NULL with an error. */
static PyObject *
list_paths(const char *what, PyObject *paths)
{
    Py_ssize_t count = PyList_GET_SIZE(paths);
    if (count == 0) {
        return PyUnicode_FromString("");
    }
    PyObject *shown = PyList_GetSlice(paths, 0, MOST_LISTED);
    PyObject *text = NULL;
    if (shown != NULL) {
        text = count > MOST_LISTED ? PyUnicode_FromFormat("; %s: %R and %zd more", what, shown,
                                                          count - MOST_LISTED)
                                   : PyUnicode_FromFormat("; %s: %R", what, shown);
    }
    Py_XDECREF(shown);
    return text;
}

/* Raises ValueError if there is anything to complain of.  0 if not, else -1. */
static int
complain(const Complaint *c)
{
    if (PyList_GET_SIZE(c->missing) + PyList_GET_SIZE(c->unknown) +
            PyList_GET_SIZE(c->doubled) ==
        0) {
        return 0;
    }
    /* One after the other: the reprs of unknown keys are Python code. */
    PyObject *missing = list_paths("missing", c->missing);
    PyObject *unknown = missing == NULL ? NULL : list_paths("unknown", c->unknown);
    PyObject *doubled =
        unknown == NULL ? NULL : list_paths("in more than one group", c->doubled);
    if (doubled != NULL) {
        PyErr_Format(PyExc_ValueError, "the groups do not fit the structure%U%U%U", missing,
                     unknown, doubled);
    }
    Py_XDECREF(missing);
    Py_XDECREF(unknown);
    Py_XDECREF(doubled);
    return -1;
}

/* Pushes the leaf under `path`, None if there is none.  How many groups have it, or -1. */
static int
find_leaf(PyObject *path, PyObject *const *groups, Py_ssize_t count, FjLeafBuf *leaves)
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

/* Lists the keys of all groups that are no paths. */
static int
find_unknown(PyObject *paths, PyObject *const *groups, Py_ssize_t count, PyObject *unknown)
{
    PyObject *known = PySet_New(paths);
    int result = known == NULL ? -1 : 0;
    for (Py_ssize_t j = 0; result == 0 && j < count; j++) {
        PyObject *keys = PyDict_Keys(groups[j]);
        result = keys == NULL ? -1 : 0;
        for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(keys); i++) {
            int is_known = PySet_Contains(known, PyList_GET_ITEM(keys, i));
            result = is_known != 0 ? (is_known < 0 ? -1 : 0)
                                   : PyList_Append(unknown, PyList_GET_ITEM(keys, i));
        }
        Py_XDECREF(keys);
    }
    Py_XDECREF(known);
    return result;
}

static int
gather(PyObject *paths, PyObject *const *groups, Py_ssize_t count, FjLeafBuf *leaves,
       const Complaint *c)
{
    Py_ssize_t total = 0, found = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(paths); i++) {
        PyObject *path = PyTuple_GET_ITEM(paths, i);
        int times = find_leaf(path, groups, count, leaves);
        if (times < 0 || (times == 0 && PyList_Append(c->missing, path) < 0) ||
            (times > 1 && PyList_Append(c->doubled, path) < 0)) {
            return -1;
        }
        found += times;
    }
    for (Py_ssize_t j = 0; j < count; j++) {
        total += PyDict_GET_SIZE(groups[j]);
    }
    if (total != found && find_unknown(paths, groups, count, c->unknown) < 0) {
        return -1;
    }
    return complain(c);
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
    /* First of all: the Python code that it may run must not find an error that is set. */
    PyObject *paths = Py_XNewRef(fj_paths_open(structure));
    Complaint c = {NULL, NULL, NULL};
    if (paths != NULL && (c.missing = PyList_New(0)) != NULL &&
        (c.unknown = PyList_New(0)) != NULL && (c.doubled = PyList_New(0)) != NULL &&
        gather(paths, groups, count, &leaves, &c) == 0) {
        tree = fj_build_open(structure, leaves.items);
    }
    Py_XDECREF(paths);
    Py_XDECREF(c.missing);
    Py_XDECREF(c.unknown);
    Py_XDECREF(c.doubled);
    fj_leafbuf_clear(&leaves);
    return tree;
}
