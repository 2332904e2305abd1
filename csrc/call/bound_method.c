/* The Python type BoundMethod: a FilterJit bound to an instance, a CallProxy with the instance
 * in front and the attributes of the function.
 *
 * The public type, BoundFilterJit, is a subclass in Python.  It is registered as a pytree
 * whose children are the function and the instance, as equinox.Partial is, and like that it is
 * compared by these, as a pytree.
 *
 * Python code can run in calls, where attributes of the function are looked up, and in hashing
 * and comparing, which flattens the instance (flatten.c) and hashes and compares its static
 * values (statics.c).
 */
#include "call/bound_method.h"

#include "base/hash.h"
#include "base/leafbuf.h"
#include "base/state.h"
#include "structure/words.h"
#include "walk/flatten.h"
#include "call/call_hooks.h"
#include "call/call_proxy.h"

/* It also has the `__module__` and `__doc__` of its function, as Python's bound methods have,
 * though its type has its own: a descriptor in the type would take the place of these, and
 * pickle finds a type by its `__module__`. */
static PyObject *
bound_getattro(PyObject *op, PyObject *name)
{
    if (PyUnicode_Check(name) && (PyUnicode_CompareWithASCIIString(name, "__module__") == 0 ||
                                  PyUnicode_CompareWithASCIIString(name, "__doc__") == 0)) {
        return PyObject_GetAttr(((FjCallProxy *)op)->function, name);
    }
    return fj_call_proxy_getattro(op, name);
}

PyObject *
fj_bound_method_new(PyTypeObject *type, PyObject *function, PyObject *self)
{
    FjCallProxy *bound = fj_call_proxy_new(type, function, function, 1);
    if (bound != NULL) {
        bound->args[0] = Py_NewRef(self);
    }
    return (PyObject *)bound;
}

int
fj_bound_method_is(PyObject *object, PyObject *function, PyObject *self)
{
    const FjCallProxy *bound = (FjCallProxy *)object;
    return Py_IS_TYPE(object, ((FjFilterJit *)function)->bound_type) &&
           bound->function == function && bound->args[0] == self;
}

static PyObject *
bound_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "self", NULL};
    PyObject *function, *self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:BoundMethod", keywords, &function,
                                     &self)) {
        return NULL;
    }
    return fj_bound_method_new(type, function, self);
}

static PyObject *
bound_get_self(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((FjCallProxy *)op)->args[0]);
}

/* ---- hash and equality ---- */

/* Two are equal if their functions are, and their instances are the same object or equal
 * pytrees: the statics by the rule of statics.h, each array the same object.  The values of
 * arrays are not compared, for which the device would have to be waited for, and which is not
 * possible while they are traced.  Instances with a static value that cannot be hashed equal
 * only themselves. */

/* Flattens the instance, and hashes its Structure.  1 with a new reference in `*structure`, 0
 * if it is compared by identity, or -1 with an error. */
static int
flatten_instance(const FjCallProxy *bound, FjStructure **structure, FjLeafBuf *arrays)
{
    FjFilterJit *function = (FjFilterJit *)bound->function;
    *structure = NULL;
    if (!PyObject_TypeCheck(function, fj_state_of(Py_TYPE(bound))->filter_jit)) {
        return 0;
    }
    if (fj_hooks_prepare(function) < 0) {
        return -1;
    }
    *structure = fj_flatten_tree(function->cache->registry, bound->args[0], arrays);
    if (*structure != NULL && fj_structure_hash(*structure) == 0) {
        return 1;
    }
    int is_failure = *structure == NULL || !PyErr_ExceptionMatches(PyExc_TypeError);
    Py_CLEAR(*structure);
    if (is_failure) {
        fj_words_note_context(function->cache->registry);
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* Whether two instances, which are not the same object, are equal.  1, 0, or -1 with an error.
 */
static int
equal_instances(const FjCallProxy *a, const FjCallProxy *b)
{
    PyObject *room_a[FJ_LEAFBUF_FEW], *room_b[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays_a, arrays_b;
    FjStructure *x = NULL, *y = NULL;
    if (Py_TYPE(a->args[0]) != Py_TYPE(b->args[0])) {
        return 0;
    }
    fj_leafbuf_init(&arrays_a, room_a, FJ_LEAFBUF_FEW);
    fj_leafbuf_init(&arrays_b, room_b, FJ_LEAFBUF_FEW);
    int same = flatten_instance(a, &x, &arrays_a);
    if (same > 0) {
        same = flatten_instance(b, &y, &arrays_b);
    }
    if (same > 0) {
        same = fj_structure_equal(x, y);
        if (same < 0) {
            fj_words_note_context(x->registry);
        }
    }
    if (same > 0) {
        same = memcmp(arrays_a.items, arrays_b.items,
                      (size_t)arrays_a.count * sizeof(PyObject *)) == 0;
    }
    fj_leafbuf_clear(&arrays_a);
    fj_leafbuf_clear(&arrays_b);
    Py_XDECREF(x);
    Py_XDECREF(y);
    return same;
}

static PyObject *
bound_richcompare(PyObject *a, PyObject *b, int operation)
{
    if (Py_TYPE(a) != Py_TYPE(b) || (operation != Py_EQ && operation != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    const FjCallProxy *x = (FjCallProxy *)a, *y = (FjCallProxy *)b;
    int same = PyObject_RichCompareBool(x->function, y->function, Py_EQ);
    if (same > 0 && x->args[0] != y->args[0]) {
        same = equal_instances(x, y);
    }
    return same < 0 ? NULL : PyBool_FromLong(same == (operation == Py_EQ));
}

/* The arrays do not count: a custom node may make new ones whenever it is flattened. */
static Py_hash_t
bound_hash(PyObject *op)
{
    const FjCallProxy *bound = (FjCallProxy *)op;
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays;
    FjStructure *structure;
    Py_hash_t own = PyObject_Hash(bound->function);
    if (own == -1) {
        return -1;
    }
    fj_leafbuf_init(&arrays, room, FJ_LEAFBUF_FEW);
    int result = flatten_instance(bound, &structure, &arrays);
    Py_uhash_t hash =
        fj_hash_mix((Py_uhash_t)own, structure != NULL ? (Py_uhash_t)structure->hash
                                                       : fj_hash_address(bound->args[0]));
    fj_leafbuf_clear(&arrays);
    Py_XDECREF(structure);
    return result < 0 ? -1 : fj_hash_finish(hash);
}

static PyGetSetDef bound_getset[] = {
    {"__self__", bound_get_self, NULL, "The instance.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(bound_doc, "BoundMethod(function, self)\n--\n\n"
                        "A FilterJit bound to an instance, without methods.");

static PyType_Slot bound_slots[] = {
    {Py_tp_doc, (void *)bound_doc},
    {Py_tp_new, bound_new},
    {Py_tp_traverse, fj_call_proxy_traverse},
    {Py_tp_dealloc, fj_call_proxy_dealloc},
    {Py_tp_getattro, bound_getattro},
    {Py_tp_hash, bound_hash},
    {Py_tp_richcompare, bound_richcompare},
    {Py_tp_getset, bound_getset},
    {0, NULL},
};

PyType_Spec fj_bound_method_spec = {
    .name = "filterjit._core.BoundMethod",
    .basicsize = sizeof(FjCallProxy),
    .itemsize = sizeof(PyObject *),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = bound_slots,
};
