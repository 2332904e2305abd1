/* The extension module filterjit._testing: parts of the core for separate tests.
 *
 * It is compiled from the core's sources, but its functions take objects of filterjit._core
 * without checking their types.  So there are two copies of the core's functions and static
 * variables, and no such object can depend on the address of one.
 *
 * Python code can run in `match`. */
#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/registry.h"
#include "structure/structure.h"
#include "walk/match.h"

/* match(structure, tree) -> tuple of arrays or None; flatten() has returned the structure */
static PyObject *
testing_match(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *op, *tree, *result = NULL, *stack[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays;
    if (!PyArg_ParseTuple(args, "OO:match", &op, &tree)) {
        return NULL;
    }
    FjStructure *structure = (FjStructure *)op;
    if (fj_structure_hash(structure) < 0) {
        return NULL;
    }
    fj_leafbuf_init(&arrays, stack, FJ_LEAFBUF_FEW);
    int matched = fj_match_tree(structure, tree, &arrays);
    if (matched >= 0) {
        result = matched ? fj_leafbuf_as_tuple(&arrays) : Py_NewRef(Py_None);
    }
    fj_leafbuf_clear(&arrays);
    return result;
}

/* num_types(registry) -> int */
static PyObject *
testing_num_types(PyObject *Py_UNUSED(module), PyObject *registry)
{
    return PyLong_FromSize_t(((FjRegistry *)registry)->types->kinds.live);
}

static PyMethodDef testing_functions[] = {
    {"match", testing_match, METH_VARARGS,
     "The arrays of a tree as a tuple, or None if its Structure is another one."},
    {"num_types", testing_num_types, METH_O, "How many types a Registry remembers."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot testing_slots[] = {
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, FJ_FREE_THREADED ? Py_MOD_GIL_NOT_USED : Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef testing_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "filterjit._testing",
    .m_doc = "Parts of the C core of filterjit that tests use on their own.",
    .m_size = 0,
    .m_methods = testing_functions,
    .m_slots = testing_slots,
};

PyMODINIT_FUNC PyInit__testing(void);

PyMODINIT_FUNC
PyInit__testing(void)
{
    return PyModuleDef_Init(&testing_definition);
}
