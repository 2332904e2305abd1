/* The record of a large argument: its containers are added as a walk goes through them, each
 * before its children.  The head of known.c says what a record is.
 *
 * No Python code runs in this file.
 */
#include "walk/known_record.h"

#define TRIED 1000  /* how many entries of a dict are searched for a key */
#define DICT_ITEM 3 /* the largest number of words in the block of a dict for each item */

/* Adds a container with the addresses in its block; NULL if there is none, or no memory. */
static FjKnownContainer *
add(FjKnownArgument *argument, PyObject *object, FjKnownPlace place, PyObject *const *items,
    Py_ssize_t size)
{
    FjKnownContainer *container =
        items == NULL || !fj_known_append_addresses(&argument->items, items, size)
            ? NULL
            : fj_known_append(&argument->containers, 1, sizeof(FjKnownContainer));
    if (container == NULL) {
        argument->failed = 1;
        return NULL;
    }
    *container = (FjKnownContainer){
        .object = object, .type = Py_TYPE(object), .size = size, .place = place};
    return container;
}

static void
add_items(FjKnownArgument *argument, PyObject *object, FjKnownPlace place)
{
    Py_ssize_t size;
    PyObject *const *items = fj_known_block(object, place, &size);
    add(argument, object, place, items, size);
}

/* Whether the first `count` keys are, as these very objects, keys of the dict. */
static int
has_keys(PyObject *dict, PyObject *keys, uint32_t count)
{
    Py_ssize_t position = 0;
    for (uint32_t i = 0; i < count; i++) {
        PyObject *wanted = PyTuple_GET_ITEM(keys, i), *key, *value;
        if ((!fj_compat_dict_next(dict, &position, &key, &value) || key != wanted) &&
            fj_compat_dict_find_object(dict, wanted, TRIED, &position) == NULL) {
            return 0;
        }
    }
    return 1;
}

/* Adds a dict with these keys. */
static void
add_dict(FjKnownArgument *argument, PyObject *keys, uint32_t count, PyObject *dict)
{
    Py_ssize_t size = 0;
    PyObject *const *entries = NULL;
    FjKnownPlace place = FJ_IN_STR_DICT;
    if (PyDict_CheckExact(dict) && PyDict_GET_SIZE(dict) == (Py_ssize_t)count &&
        has_keys(dict, keys, count) &&
        (entries = fj_known_block(dict, place, &size)) == NULL) {
        entries = fj_known_block(dict, place = FJ_IN_DICT, &size);
    }
    if (size > DICT_ITEM * (Py_ssize_t)count) { /* items were deleted */
        entries = NULL;
    }
    add(argument, dict, place, entries, size);
}

/* Whether all fields stand among the first `used` values.  If there are as many attributes as
 * fields, the values have nothing else. */
static int
has_all(const FjFieldView *view, FjNodeKind *kind)
{
    for (Py_ssize_t i = 0; i < fj_node_kind_fields(kind); i++) {
        if (fj_fields_peek(view, kind, i) == NULL || kind->places[i] >= view->used) {
            return 0;
        }
    }
    return 1;
}

/* Adds a Module, or an object whose fields are in its __dict__. */
static void
add_fields(FjKnownArgument *argument, const FjNode *node, PyObject *object)
{
    FjNodeKind *kind = fj_node_kind(node);
    FjFieldView view;
    FjKnownContainer *container = NULL;
    if (fj_fields_view(object, &view) < 0) {
        PyErr_Clear();
    }
    else if (view.used != fj_node_kind_fields(kind) || view.used != node->arity) {
        /* It is a wrapper, or has other attributes. */
    }
    else if (view.values != NULL && has_all(&view, kind)) {
        container = add(argument, object, FJ_IN_VALUES, view.values, view.used);
    }
    else if (view.values == NULL && view.dict != NULL) {
        container = add(argument, object, FJ_IN_ITS_DICT, &view.dict, 1);
    }
    if (container == NULL) {
        argument->failed = 1;
        return;
    }
    container->kind = node->code == FJ_OBJECT ? kind : NULL;
    if (view.values == NULL) {
        add_dict(argument, kind->names, node->arity, view.dict);
    }
}

/* Adds an object whose fields are in slots. */
static void
add_slots(FjKnownArgument *argument, const FjNode *node, PyObject *object,
          Py_ssize_t num_arrays)
{
    FjNodeKind *kind = fj_node_kind(node);
    PyObject *room[FJ_FIELDS_INLINE];
    if (node->arity > FJ_FIELDS_INLINE) {
        argument->failed = 1;
        return;
    }
    for (uint32_t i = 0; i < node->arity; i++) {
        room[i] = *(PyObject **)((char *)object + kind->offsets[i]);
        argument->failed |= room[i] == NULL;
    }
    FjKnownContainer *container = add(argument, object, FJ_IN_SLOTS, room, node->arity);
    if (container != NULL) {
        container->kind = kind;
        if (kind->dynamic == 1 && node[1].code == FJ_ARRAY) {
            container->array = (uint32_t)num_arrays + 1;
        }
    }
}

static void
add_object(FjKnownArgument *argument, const FjNode *node, PyObject *object,
           Py_ssize_t num_arrays)
{
    FjNodeKind *kind = fj_node_kind(node);
    if (fj_known_keeps_all(kind, FJ_IN_SLOTS)) {
        add_slots(argument, node, object, num_arrays);
    }
    else if (fj_known_keeps_all(kind, FJ_IN_VALUES)) {
        add_fields(argument, node, object);
    }
    else {
        argument->failed = 1;
    }
}

void
fj_known_add(FjKnownArgument *argument, const FjStructure *structure, const FjNode *node,
             PyObject *object, Py_ssize_t num_arrays)
{
    const PyTypeObject *type = fj_structure_info(structure, node)->type;
    if (argument->failed || (type != NULL && Py_TYPE(object) != type)) {
        argument->failed = 1;
        return;
    }
    switch (node->code) {
    case FJ_LIST:
        PyList_CheckExact(object) ? add_items(argument, object, FJ_IN_LIST)
                                  : fj_known_fail(argument);
        break;
    case FJ_TUPLE: /* one that never changes is known by its address */
        if (object != node->aux) {
            PyTuple_CheckExact(object) ? add_items(argument, object, FJ_IN_TUPLE)
                                       : fj_known_fail(argument);
        }
        break;
    case FJ_NAMEDTUPLE:
        add_items(argument, object, FJ_IN_TUPLE);
        break;
    case FJ_MODULE:
        add_fields(argument, node, object);
        break;
    case FJ_OBJECT:
        add_object(argument, node, object, num_arrays);
        break;
    case FJ_DICT:
        add_dict(argument, node->aux, node->arity, object);
        break;
    case FJ_CUSTOM: /* a static: see fj_known_add_static */
        argument->failed = !(node->flags & FJ_NODE_ITSELF);
        break;
    default:
        argument->failed = 1;
    }
}

void
fj_known_add_static(FjKnownArgument *argument, const FjStructure *structure,
                    const FjNode *node, PyObject *value)
{
    FjKnownContainer *container =
        argument->failed ? NULL : add(argument, value, FJ_IN_SNAPSHOT, fj_known_no_items, 0);
    if (container != NULL) {
        container->node = (uint32_t)(node - structure->nodes);
    }
}

void
fj_known_add_ref(FjKnownArgument *argument, PyObject *object, uint32_t number)
{
    FjKnownRef *ref =
        argument->failed ? NULL : fj_known_append(&argument->refs, 1, sizeof(FjKnownRef));
    if (ref == NULL) {
        argument->failed = 1;
        return;
    }
    *ref = (FjKnownRef){object, number};
}
