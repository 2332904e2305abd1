/* Builds a tree, or the arguments of a call, in one pass over a Structure's nodes.
 *
 * Python code can run when the readers build containers (kinds.h).  This code and other
 * threads can find unfinished containers with gc.get_objects().  So a container must be
 * complete when the garbage collector sees it: its children are built first, or it is hidden
 * until it has them all (fj_hide).  Dicts are the exception: they are always valid. */
#include "walk/build.h"

#include "walk/kinds.h"

/* A further occurrence of a numbered object. */
static PyObject *
build_ref(FjBuilder *b, const FjNode *node)
{
    PyObject *built = b->numbered[fj_node_number(node)];
    if (built == NULL) {
        PyErr_SetString(PyExc_RecursionError, "an argument contains itself");
    }
    return Py_XNewRef(built);
}

static PyObject *
build_node_of_its_own(FjBuilder *b, const FjNode *node)
{
    if (node->code == FJ_NONE) {
        return Py_NewRef(Py_None);
    }
    if (node->code == FJ_REF) {
        return build_ref(b, node);
    }
    PyObject *(*build)(FjBuilder *, const FjNode *) = fj_readers[node->code]->build;
    /* A node without grandchildren needs no recursion check. */
    if (node->arity == 0 || node->flags & FJ_NODE_SHALLOW) {
        return build(b, node);
    }
    if (Py_EnterRecursiveCall(" while building a pytree")) {
        return NULL;
    }
    PyObject *result = build(b, node);
    Py_LeaveRecursiveCall();
    return result;
}

/* For a numbered node: REF nodes may refer to it. */
static PyObject *
build_numbered(FjBuilder *b, const FjNode *node)
{
    uint32_t number = b->next_number++;
    PyObject *result = build_node_of_its_own(b, node);
    b->numbered[number] = Py_XNewRef(result);
    return result;
}

PyObject *
fj_build_container(FjBuilder *b)
{
    const FjNode *node = b->next++;
    return FJ_UNLIKELY(b->numbered != NULL) && (node->flags & FJ_NODE_NUMBERED)
               ? build_numbered(b, node)
               : build_node_of_its_own(b, node);
}

static void
end_build(FjBuilder *b)
{
    Py_XDECREF(b->no_arguments);
    for (int i = 0; i < b->num_shared; i++) {
        Py_DECREF(b->shared[i].made);
    }
    for (uint32_t i = 0; b->numbered != NULL && i < b->structure->num_numbered; i++) {
        Py_XDECREF(b->numbered[i]);
    }
    PyMem_Free(b->numbered);
}

static PyObject *
run_build(FjStructure *structure, PyObject *const *arrays, PyObject *(*build)(FjBuilder *))
{
    FjBuilder b = {.structure = structure,
                   .next = structure->nodes,
                   .arrays = arrays,
                   .registry = (PyObject *)structure->registry,
                   .missing = fj_registry_missing(structure->registry),
                   .no_arguments = PyTuple_New(0)};
    PyObject *result = NULL;
    if (structure->num_refs > 0) {
        b.numbered = PyMem_Calloc(structure->num_numbered, sizeof(PyObject *));
        if (b.numbered == NULL) {
            PyErr_NoMemory();
        }
    }
    if (b.no_arguments != NULL && (structure->num_refs == 0 || b.numbered != NULL)) {
        result = build(&b);
    }
    end_build(&b);
    return result;
}

PyObject *
fj_build_tree(FjStructure *structure, PyObject *const *arrays)
{
    return run_build(structure, arrays, fj_build_node);
}

/* Returns a new list.  The registry stands for an argument that was not given, because
 * `missing` itself could be passed as an argument. */
static PyObject *
build_root(FjBuilder *b)
{
    const FjNode *root = b->next++;
    PyObject *list = fj_hide(PyList_New(root->arity));
    for (uint32_t i = 0; list != NULL && i < root->arity; i++) {
        PyObject *item;
        if (b->next->code == FJ_MISSING) {
            b->next++;
            item = Py_NewRef(b->registry);
        }
        else {
            item = fj_build_node(b);
        }
        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, item);
    }
    if (list != NULL) {
        fj_show(list);
    }
    return list;
}

PyObject *
fj_build_arguments(FjStructure *structure, PyObject *const *arrays)
{
    return run_build(structure, arrays, build_root);
}
