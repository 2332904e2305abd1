/* filterjit._testing: the hash table by itself, for tests.
 *
 * A Table drives table.c and nothing else.  What it holds are pairs (key, value), under a hash
 * that the test chooses, so that it can make keys collide.  A pair is looked for by its key,
 * with Python's ==: a test's __eq__ can raise, or change this very table in the middle of a
 * probe, which no caller in the core could be made to do at will.
 *
 * Python code can run in `find` (the ==) and wherever a pair is dropped.
 */
#include "base/common.h"
#include "base/table.h"

typedef struct {
    PyObject_HEAD FjTable table; /* all zero is an empty table */
} Table;

/* Unlike PyObject_RichCompareBool this asks also where both are the same object. */
static int
pair_has_key(PyObject *pair, const void *probe)
{
    PyObject *answer =
        PyObject_RichCompare(PyTuple_GET_ITEM(pair, 0), (PyObject *)probe, Py_EQ);
    if (answer == NULL) {
        return -1;
    }
    int same = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return same;
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
        PyErr_SetString(PyExc_TypeError, "a pair is (key, value)");
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

/* Appending allocates no object that the collector tracks, so the table stays as it is. */
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

/* room() -> (size, filled): for invariants. */
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
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    table_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef table_methods[] = {
    {"find", table_find, METH_VARARGS,
     "find(hash, key) -> the pair whose key is == `key`, or None"},
    {"add", table_add, METH_VARARGS, "add(hash, pair): without looking for an equal one"},
    {"remove", table_remove, METH_VARARGS, "remove(hash, pair) -> whether it was there"},
    {"clear", table_clear_method, METH_NOARGS, "clear(): drops all pairs"},
    {"values", table_values, METH_NOARGS, "values() -> list of the pairs"},
    {"room", table_room, METH_NOARGS,
     "room() -> (size, filled): how many entries there are, and how many are in use or "
     "deleted"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "A hash table of (key, value) pairs, under hashes that the caller gives."},
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
    {0, NULL},
};

static struct PyModuleDef testing_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "filterjit._testing",
    .m_doc = "Parts of the C core by themselves, for tests.",
    .m_size = 0,
    .m_slots = testing_slots,
};

PyMODINIT_FUNC PyInit__testing(void);

PyMODINIT_FUNC
PyInit__testing(void)
{
    return PyModuleDef_Init(&testing_definition);
}
