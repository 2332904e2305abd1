/* Compares a tree exactly with a Structure (expected.h): the walk of flatten.c, preceded by a
 * faster comparison in builds without a GIL.
 *
 * Without a GIL, other threads can change a container at any time.  So its contents are read
 * in one step, under its lock, and held.  Only statics that are the Structure's very objects
 * need no reference.  Most of a model consists of these, and they pass without a look-up.  The
 * nodes store the kinds, which saves asking the registry.
 *
 * The readers of common kinds call these functions (FjReader.compare).  flatten.c compares all
 * other kinds, and dicts with keys that aren't the node's.
 *
 * No Python code runs while a container is locked.  It can run when values are compared
 * (expected.c), when a field isn't in its storage, and when references are dropped. */
#include "walk/flatten.h"
#include "walk/reader.h"

#if FJ_FREE_THREADED

#include "base/scratch.h"
#include "structure/fields.h"

/* Skipping this many names per key takes as long as looking the keys up. */
#define PASSED 16

/* Searches the first `count` names from `first` on.  -1 if absent.  Runs no Python code. */
static inline Py_ssize_t
find_name(PyObject *key, PyObject *const *names, Py_ssize_t count, Py_ssize_t first)
{
    Py_ssize_t i = first;
    for (Py_ssize_t tried = 0; tried < count; tried++) {
        if (FJ_LIKELY(key == names[i])) {
            return i;
        }
        i = i + 1 == count ? 0 : i + 1;
    }
    /* Compare values too: a key added through a __dict__ need not be interned. */
    for (Py_ssize_t tried = 0; tried < count && PyUnicode_CheckExact(key); tried++) {
        if (PyUnicode_CheckExact(names[i]) && PyUnicode_Compare(key, names[i]) == 0) {
            return i;
        }
        i = i + 1 == count ? 0 : i + 1;
    }
    return -1;
}

/* Sets `values` to the values of the first `count` names (borrowed), or NULL for unset ones,
 * unless the dict contains other keys.  The caller has locked it.  Hashes no key and runs no
 * Python code.  1, or 0 with other keys, or if their order makes the search slow. */
static int
read_dict(PyObject *dict, PyObject *names, Py_ssize_t count, PyObject **values)
{
    PyObject *key, *value;
    Py_ssize_t position = 0, next = 0, passed = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i] = NULL;
    }
    while (fj_compat_dict_next(dict, &position, &key, &value)) {
        /* Usually the next field comes next.  __init__ often sets static fields first. */
        Py_ssize_t i = find_name(key, ((PyTupleObject *)names)->ob_item, count, next);
        passed += i < next ? i - next + count : i - next;
        if (i < 0 || passed > PASSED * count) {
            return 0;
        }
        values[i] = value;
        next = i + 1 == count ? 0 : i + 1;
    }
    return 1;
}

/* Holds the items read from a locked container.  `node` is its first child.  Items that need
 * no comparison become NULL: the very static of its node, which the Structure holds, or an
 * item absent in both.  1, or 0 without references if any other item is absent. */
static int
hold(FjStructure *structure, const FjNode *node, PyObject **items, Py_ssize_t count)
{
    const PyObject *missing = fj_registry_missing(structure->registry);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = items[i];
        if (node->code == FJ_STATIC && item == node->aux && node->flags & FJ_NODE_SELF_EQUAL) {
            items[i] = NULL;
        }
        else if (node->code == FJ_MISSING && (item == NULL || item == missing)) {
            items[i] = NULL;
        }
        else if (item != NULL) {
            Py_INCREF(item);
        }
        else {
            while (i > 0) {
                Py_XDECREF(items[--i]); /* the container holds them */
            }
            return 0;
        }
        node = node->arity == 0 ? node + 1 : fj_structure_skip(structure, node);
    }
    return 1;
}

/* (P) Drops the references of `hold`. */
static void
drop(PyObject *const *items, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(items[i]);
    }
}

int
fj_compare_child(FjFlattener *f, PyObject *object)
{
    const FjNode *node = f->expected->next;
    return node->code == FJ_STATIC && node->flags & FJ_NODE_FIELD
               ? fj_expected_field(f->expected, object)
               : fj_flatten_object(f, object);
}

int
fj_compare_held(FjFlattener *f, PyObject **items, Py_ssize_t count)
{
    FjExpected *e = f->expected;
    const PyTypeObject *array_type = fj_flatten_registry(f)->array_type;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (items[i] == NULL) {
            e->next++;
        }
        else if (e->next->code == FJ_ARRAY && Py_TYPE(items[i]) == array_type) {
            if (fj_leafbuf_reserve(f->arrays, 1) < 0) {
                return -1;
            }
            f->arrays->items[f->arrays->count++] = items[i];
            items[i] = NULL;
            e->next++;
        }
        else if (fj_compare_child(f, items[i]) < 0) {
            return -1;
        }
    }
    return 1;
}

/* For a locked list; see read_dict. */
static int
read_list(PyObject *list, Py_ssize_t count, PyObject **items)
{
    if (PyList_GET_SIZE(list) != count) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        items[i] = PyList_GET_ITEM(list, i);
    }
    return 1;
}

int
fj_compare_children(FjFlattener *f, const FjNode *node, PyObject *container, PyObject *names,
                    Py_ssize_t size)
{
    PyObject *room[FJ_FIELDS_INLINE];
    Py_ssize_t count = node->arity;
    PyObject **values = fj_scratch_new(room, FJ_FIELDS_INLINE, count);
    if (values == NULL) {
        return -1;
    }
    int is_wrapper = !!(node->flags & FJ_NODE_WRAPPER), result;
    FJ_LOCK(container);
    result = (names == NULL ? read_list(container, count, values)
                            : (PyDict_GET_SIZE(container) != size) == is_wrapper &&
                                  read_dict(container, names, count, values)) &&
             hold(f->structure, node + 1, values, count);
    FJ_UNLOCK();
    if (result > 0) {
        f->expected->next = node + 1;
        result = fj_compare_held(f, values, count);
        drop(values, count);
    }
    fj_scratch_free(values, room);
    return result;
}

/* (P) The `compare` of an FjFlattener. */
static int
compare_object(FjFlattener *f, PyObject *object)
{
    FjExpected *e = f->expected;
    const FjNode *node = e->next;
    if (node->code == FJ_REF) {
        return fj_expected_identity(e, object, f->objects);
    }
    int result = fj_expected_meet(e, object);
    if (result != 0) {
        return result;
    }
    if (node->code == FJ_NONE) {
        e->next++;
        return 1;
    }
    Py_ssize_t numbered = f->objects == NULL ? 0 : f->objects->count;
    if (node->flags & FJ_NODE_IDENTITY && fj_leafbuf_push(f->objects, object) < 0) {
        return -1;
    }
    if (Py_EnterRecursiveCall(" while matching a pytree")) {
        return -1;
    }
    const FjReader *reader = fj_readers[node->code];
    result = reader->compare == NULL ? 0 : reader->compare(f, node, object);
    Py_LeaveRecursiveCall();
    if (result == 0 && node->flags & FJ_NODE_IDENTITY) { /* flatten.c pushes it */
        fj_leafbuf_truncate(f->objects, numbered);
    }
    return result;
}

#endif

int
fj_flatten_compare(FjStructure *structure, const FjNode *first, PyObject *const *trees,
                   Py_ssize_t count, FjLeafBuf *arrays, FjLeafBuf *objects)
{
    FjExpected expected = {.structure = structure, .next = first, .arrays = arrays};
    FjFlattener f = {.structure = structure,
                     .arrays = arrays,
                     .objects = objects,
                     .may_stop = 1,
#if FJ_FREE_THREADED
                     .compare = compare_object,
#endif
                     .expected = &expected};
    int result = 0;
    if (fj_compat_enter_frames() < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count && result == 0; i++) {
        result =
            trees[i] == NULL || expected.next->code == FJ_MISSING
                ? fj_expected_pass(&expected, trees[i] == NULL ? FJ_MISSING : FJ_KIND_COUNT)
                : fj_flatten_object(&f, trees[i]);
    }
    fj_compat_leave_frames();
    return result == 0 ? 1 : expected.differs ? 0 : -1;
}
