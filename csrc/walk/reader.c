/* The table of the readers (reader.h), and those of nodes without children.
 *
 * Python code can run where the readers say so.
 */
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
build_missing(FjBuilder *b, const FjNode *Py_UNUSED(node))
{
    return Py_NewRef(b->missing);
}

/* The object of an earlier node. */
static PyObject *
build_ref(FjBuilder *b, const FjNode *node)
{
    PyObject *built = b->numbered[fj_node_number(node)];
    if (built == NULL) {
        PyErr_SetString(PyExc_RecursionError, "an argument contains itself");
    }
    return Py_XNewRef(built);
}

static const FjReader none_reader = {flatten_none, build_none, FJ_COMPARE(NULL)};
static const FjReader missing_reader = {NULL, build_missing, FJ_COMPARE(NULL)};
static const FjReader ref_reader = {NULL, build_ref, FJ_COMPARE(NULL)};

const FjReader *const fj_readers[FJ_CODE_COUNT] = {
    [FJ_NONE] = &none_reader,
    [FJ_TUPLE] = &fj_tuple_reader,
    [FJ_LIST] = &fj_list_reader,
    [FJ_DICT] = &fj_dict_reader,
    [FJ_ORDERED_DICT] = &fj_other_dict_reader,
    [FJ_DEFAULT_DICT] = &fj_other_dict_reader,
    [FJ_NAMEDTUPLE] = &fj_namedtuple_reader,
    [FJ_MODULE] = &fj_module_reader,
    [FJ_OBJECT] = &fj_object_reader,
    [FJ_CUSTOM] = &fj_custom_reader,
    [FJ_DESCRIBED] = &fj_described_reader,
    [FJ_MISSING] = &missing_reader,
    [FJ_REF] = &ref_reader,
};
