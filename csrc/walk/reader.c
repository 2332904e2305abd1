/* The table of readers, and the readers of nodes without children.  Python code can run in
 * expected.c and in the other readers. */
#include "walk/reader.h"

static int
flatten_none(FjFlattener *f, PyObject *Py_UNUSED(none), FjNodeKind *Py_UNUSED(kind))
{
    return fj_flatten_nothing(f, FJ_NONE);
}

static PyObject *
build_none(FjBuilder *Py_UNUSED(b), const FjNode *Py_UNUSED(node))
{
    return Py_NewRef(Py_None);
}

static PyObject *
build_ref(FjBuilder *b, const FjNode *node)
{
    PyObject *built = b->numbered[fj_node_number(node)];
    if (built == NULL) {
        PyErr_SetString(PyExc_RecursionError, "an argument contains itself");
    }
    return Py_XNewRef(built);
}

const FjReader fj_none_reader = {flatten_none, build_none, FJ_COMPARE(NULL)};
const FjReader fj_ref_reader = {NULL, build_ref, FJ_COMPARE(NULL)};

#define ROW_OF_TABLE(code, reader) [code] = &(reader),
const FjReader *const fj_readers[FJ_CODE_COUNT] = {FJ_READERS(ROW_OF_TABLE)};
