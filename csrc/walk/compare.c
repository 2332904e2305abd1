/* The walk that compares a tree with a Structure exactly (expected.h): that of flatten.c, and
 * where there is no GIL, one that flatten.c asks first.
 *
 * Without a GIL, another thread may change a container at any time.  So what is in it is read
 * at one moment, while it is locked, and held: but for the very statics that the Structure
 * has, which need no reference.  Most of what is in a model is of this kind, and is passed
 * without a look-up. What a node is a kind of, the Structure knows, so the registry is not
 * asked either.
 *
 * The readers of the common kinds use what is here (FjReader.compare).  flatten.c compares all
 * others, and dicts whose keys are not those of the node.
 *
 * No Python code runs while a container is locked.  It can run where values are compared
 * (expected.c), where a field is not where it is stored, and where references are dropped.
 */
#include "walk/flatten.h"
#include "walk/reader.h"

#if FJ_FREE_THREADED

#include "base/scratch.h"
#include "structure/fields.h"

/* To pass so many names for each key that is found takes as long as to look the keys up. */
#define PASSED 16

/* The index of `key` among the first `count` names, which are looked at from `first` on; -1 if
 * it is not among them.  Runs no Python code. */
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
    /* Compare values too: a key that was added through a __dict__ need not be interned. */
    for (Py_ssize_t tried = 0; tried < count && PyUnicode_CheckExact(key); tried++) {
        if (PyUnicode_CheckExact(names[i]) && PyUnicode_Compare(key, names[i]) == 0) {
            return i;
        }
        i = i + 1 == count ? 0 : i + 1;
    }
    return -1;
}

/* Sets `values` to the values of the first `count` of `names`, borrowed, NULL where one is not
 * set, if the dict has no other keys.  The caller has locked it.  Looks up no key and runs no
 * Python code.  1, or 0 if there is another key, or if the keys are in such another order that
 * it takes long to find them. */
static int
read_dict(PyObject *dict, PyObject *names, Py_ssize_t count, PyObject **values)
{
    PyObject *key, *value;
    Py_ssize_t position = 0, next = 0, passed = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i] = NULL;
    }
    while (fj_compat_dict_next(dict, &position, &key, &value)) {
        /* The next key is nearly always that of the next field.  An __init__ often sets the
         * static fields first. */
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

/* Holds what was read in a container that is locked, whose first child is `node`.  An item
 * becomes NULL where nothing remains to be compared: it is the very static of its node, which
 * the Structure holds, or is absent as the node says.  1, or 0 if another item is absent,
 * without any references. */
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

/* (P) Drops what `hold` has held. */
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

/* Reads the items of a list that the caller has locked, as read_dict does. */
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

/* (P) Compares an object, which the caller holds: an FjFlattener's `compare`. */
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
