/* The extension module filterjit._testing: parts of the core that tests use on their own.
 *
 * It is compiled from the sources of the core, and its functions take objects of
 * filterjit._core.  So there are two copies of the core's functions and static variables, and
 * nothing in such an object may depend on the address of one.
 *
 * The type Table is an interface to table.c.  Its values are pairs (key, value), which are
 * added with a hash that the test chooses, so a test can make keys collide.  A pair is found
 * by its key, with Python's ==.  So the __eq__ of a test's key can raise, or change the table
 * in the middle of a probe, which is hard to achieve through the core.
 *
 * Python code can run in Table.find (the __eq__), wherever a pair is dropped, and in `match`.
 */
#include "base/common.h"
#include "base/leafbuf.h"
#include "base/table.h"
#include "structure/registry.h"
#include "structure/structure.h"
#include "walk/match.h"

typedef struct {
    PyObject_HEAD FjTable table; /* empty if all bytes are zero */
} Table;

/* Unlike PyObject_RichCompareBool this calls __eq__ even if both are the same object. */
static int
pair_has_key(PyObject *pair, const void *probe)
{
    return fj_take_truth(
        PyObject_RichCompare(PyTuple_GET_ITEM(pair, 0), (PyObject *)probe, Py_EQ));
}

/* find(hash, key) -> pair or None */
static PyObject *
table_find(PyObject *op, PyObject *args)
{
    Py_ssize_t hash;
    PyObject *key, *pair;
    if (!PyArg_ParseTuple(args, "nO:find", &hash, &key)) {
        return NULL;
    }
    int found = fj_table_find(&((Table *)op)->table, hash, pair_has_key, key, &pair);
    if (found < 0) {
        return NULL;
    }
    return found > 0 ? pair : Py_NewRef(Py_None);
}

static int
parse_pair(PyObject *args, Py_ssize_t *hash, PyObject **pair)
{
    if (!PyArg_ParseTuple(args, "nO!", hash, &PyTuple_Type, pair)) {
        return -1;
    }
    if (PyTuple_GET_SIZE(*pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "a pair must be (key, value)");
        return -1;
    }
    return 0;
}

/* add(hash, pair) */
static PyObject *
table_add(PyObject *op, PyObject *args)
{
    Py_ssize_t hash;
    PyObject *pair;
    if (parse_pair(args, &hash, &pair) < 0 ||
        fj_table_add(&((Table *)op)->table, hash, pair) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* remove(hash, pair) -> bool */
static PyObject *
table_remove(PyObject *op, PyObject *args)
{
    Py_ssize_t hash;
    PyObject *pair;
    if (parse_pair(args, &hash, &pair) < 0) {
        return NULL;
    }
    return PyBool_FromLong(fj_table_remove(&((Table *)op)->table, hash, pair));
}

static PyObject *
table_clear_method(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    fj_table_clear(&((Table *)op)->table);
    Py_RETURN_NONE;
}

/* Appending to a list cannot start a garbage collection, so the table does not change. */
static PyObject *
table_values(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyObject *list = PyList_New(0);
    size_t position = 0;
    PyObject *pair;
    while (list != NULL && (pair = fj_table_next(&((Table *)op)->table, &position)) != NULL) {
        if (PyList_Append(list, pair) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* room() -> (size, filled) */
static PyObject *
table_room(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const FjTable *table = &((Table *)op)->table;
    Py_ssize_t size = table->entries == NULL ? 0 : (Py_ssize_t)table->mask + 1;
    return Py_BuildValue("(nn)", size, (Py_ssize_t)table->filled);
}

static Py_ssize_t
table_length(PyObject *op)
{
    return (Py_ssize_t)((Table *)op)->table.live;
}

static int
table_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return fj_table_traverse(&((Table *)op)->table, visit, arg);
}

static int
table_clear(PyObject *op)
{
    fj_table_clear(&((Table *)op)->table);
    return 0;
}

static void
table_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    table_clear(op);
    fj_object_free(op);
}

static PyMethodDef table_methods[] = {
    {"find", table_find, METH_VARARGS, "The pair whose key == `key`, or None."},
    {"add", table_add, METH_VARARGS, "Adds a pair, without looking for an equal key."},
    {"remove", table_remove, METH_VARARGS, "Removes this pair: whether the table had it."},
    {"clear", table_clear_method, METH_NOARGS, "Removes all pairs."},
    {"values", table_values, METH_NOARGS, "A list of the pairs."},
    {"room", table_room, METH_NOARGS,
     "(size, filled): the number of entries, and of those in use or deleted."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "A hash table of (key, value) pairs with hashes that the caller chooses."},
    {Py_tp_traverse, table_traverse},
    {Py_tp_clear, table_clear},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {Py_sq_length, table_length},
    {0, NULL},
};

static PyType_Spec table_spec = {
    .name = "filterjit._testing.Table",
    .basicsize = sizeof(Table),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = table_slots,
};

/* ---- functions of the core ---- */

/* Checks that an argument is of the type of this name of filterjit._core, which this module
 * cannot refer to otherwise.  0, or -1 with TypeError. */
static int
expect_type(PyObject *object, const char *name)
{
    if (strcmp(Py_TYPE(object)->tp_name, name) != 0) {
        PyErr_Format(PyExc_TypeError, "expected a `%s`, not a `%s`", name,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    return 0;
}

/* match(structure, tree) -> tuple of arrays or None */
static PyObject *
testing_match(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *op, *tree, *result = NULL, *room[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays;
    if (!PyArg_ParseTuple(args, "OO:match", &op, &tree) ||
        expect_type(op, "filterjit.types.Structure") < 0) {
        return NULL;
    }
    FjStructure *structure = (FjStructure *)op;
    if (structure->is_tree_structure) {
        PyErr_SetString(PyExc_ValueError,
                        "match() takes only Structures that flatten() returned");
        return NULL;
    }
    if (fj_structure_hash(structure) < 0) {
        return NULL;
    }
    fj_leafbuf_init(&arrays, room, FJ_LEAFBUF_FEW);
    switch (fj_match_tree(structure, tree, &arrays)) {
    case FJ_MATCH_YES:
        result = fj_leafbuf_as_tuple(&arrays);
        break;
    case FJ_MATCH_NO:
        result = Py_NewRef(Py_None);
        break;
    case FJ_MATCH_ERROR:
        break;
    }
    fj_leafbuf_clear(&arrays);
    return result;
}

/* num_types(registry) -> int */
static PyObject *
testing_num_types(PyObject *Py_UNUSED(module), PyObject *registry)
{
    return expect_type(registry, "filterjit._core.Registry") < 0
               ? NULL
               : PyLong_FromSize_t(((FjRegistry *)registry)->types->kinds.live);
}

static PyMethodDef testing_functions[] = {
    {"match", testing_match, METH_VARARGS,
     "The arrays of a tree as a tuple, or None if its Structure is another one."},
    {"num_types", testing_num_types, METH_O, "How many types a Registry remembers."},
    {NULL, NULL, 0, NULL},
};

/* ---- the module ---- */

static int
testing_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &table_spec, NULL);
    int result = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return result;
}

static PyModuleDef_Slot testing_slots[] = {
    {Py_mod_exec, testing_exec},
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
