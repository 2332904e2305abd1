/* A FilterJit bound to an instance: a call passes the instance as the first argument.
 *
 * It is registered as a pytree whose children are the function and the instance, as
 * equinox.Partial is, and like that it is compared by these, as a pytree.
 *
 * Python code can run in calls (call.c), where attributes are looked up or printed, which is
 * done by the function and the instance, and in hashing and comparing, which flattens the
 * instance (flatten.c) and hashes and compares its static values (statics.c).
 */
#include "call/bound_method.h"

#include <structmember.h>

#include "base/hash.h"
#include "base/leafbuf.h"
#include "base/scratch.h"
#include "walk/flatten.h"
#include "call/attribute.h"
#include "call/call.h"

#define ARGS_INLINE 8

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *function; /* the FilterJit */
    PyObject *self;
    PyObject *weakrefs;
} FjBoundMethod;

static PyObject *
bound_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FjBoundMethod *bound = (FjBoundMethod *)op;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    PyObject *result;
    if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {
        /* The caller allows args[-1] to be overwritten for the time of the call. */
        PyObject **with_self = (PyObject **)args - 1;
        PyObject *overwritten = with_self[0];
        with_self[0] = bound->self;
        result = PyObject_Vectorcall(bound->function, with_self, (size_t)nargs + 1, kwnames);
        with_self[0] = overwritten;
        return result;
    }
    Py_ssize_t total = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    PyObject *room[ARGS_INLINE];
    PyObject **all = fj_scratch_new(room, ARGS_INLINE, total + 1);
    if (all == NULL) {
        return NULL;
    }
    all[0] = bound->self;
    memcpy(all + 1, args, (size_t)total * sizeof(PyObject *));
    result = PyObject_Vectorcall(bound->function, all, (size_t)nargs + 1, kwnames);
    fj_scratch_free(all, room);
    return result;
}

PyObject *
fj_bound_method_new(FjState *state, PyObject *function, PyObject *self)
{
    FjBoundMethod *bound = (FjBoundMethod *)state->bound->tp_alloc(state->bound, 0);
    if (bound != NULL) {
        bound->vectorcall = bound_vectorcall;
        bound->function = Py_NewRef(function);
        bound->self = Py_NewRef(self);
    }
    return (PyObject *)bound;
}

int
fj_bound_method_is(const FjState *state, PyObject *object, PyObject *function, PyObject *self)
{
    return Py_IS_TYPE(object, state->bound) &&
           ((FjBoundMethod *)object)->function == function &&
           ((FjBoundMethod *)object)->self == self;
}

static PyObject *
bound_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "self", NULL};
    PyObject *function, *self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:BoundFilterJit", keywords, &function,
                                     &self)) {
        return NULL;
    }
    return fj_bound_method_new(fj_state_of(type), function, self);
}

static int
bound_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjBoundMethod *bound = (FjBoundMethod *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(bound->function);
    Py_VISIT(bound->self);
    return 0;
}

static void
bound_dealloc(PyObject *op)
{
    FjBoundMethod *bound = (FjBoundMethod *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    Py_XDECREF(bound->function);
    Py_XDECREF(bound->self);
    type->tp_free(op);
    Py_DECREF(type);
}

/* Like Python's bound methods it also has the attributes of the function.  `__module__` and
 * `__doc__` are among them, though the type has its own: a descriptor in the type would take
 * the place of these, and pickle finds a type by its `__module__`. */
static PyObject *
bound_getattro(PyObject *op, PyObject *name)
{
    PyObject *function = ((FjBoundMethod *)op)->function;
    if (PyUnicode_Check(name) && (PyUnicode_CompareWithASCIIString(name, "__module__") == 0 ||
                                  PyUnicode_CompareWithASCIIString(name, "__doc__") == 0)) {
        return PyObject_GetAttr(function, name);
    }
    return fj_attribute_get(op, name, function);
}

static PyObject *
bound_get_wrapped(PyObject *op, void *Py_UNUSED(closure))
{
    FjBoundMethod *bound = (FjBoundMethod *)op;
    PyObject *wrapped = PyObject_GetAttrString(bound->function, "__wrapped__");
    PyObject *method = wrapped == NULL ? NULL : PyMethod_New(wrapped, bound->self);
    Py_XDECREF(wrapped);
    return method;
}

static PyObject *
bound_repr(PyObject *op)
{
    FjBoundMethod *bound = (FjBoundMethod *)op;
    return PyUnicode_FromFormat("<bound %R of %R>", bound->function, bound->self);
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
flatten_instance(const FjBoundMethod *bound, FjStructure **structure, FjLeafBuf *arrays)
{
    FjFilterJit *function = (FjFilterJit *)bound->function;
    *structure = NULL;
    if (Py_TYPE(function) != fj_state_of(Py_TYPE(bound))->filter_jit) {
        return 0;
    }
    if (fj_call_prepare(function) < 0) {
        return -1;
    }
    *structure = fj_flatten_tree(function->cache->registry, bound->self, arrays);
    if (*structure != NULL && fj_structure_hash(*structure) == 0) {
        return 1;
    }
    int is_failure = *structure == NULL || !PyErr_ExceptionMatches(PyExc_TypeError);
    Py_CLEAR(*structure);
    if (is_failure) {
        fj_structure_note_error_context();
        return -1;
    }
    PyErr_Clear();
    return 0;
}

/* Whether two instances, which are not the same object, are equal.  1, 0, or -1 with an error.
 */
static int
equal_instances(const FjBoundMethod *a, const FjBoundMethod *b)
{
    PyObject *room_a[FJ_LEAFBUF_FEW], *room_b[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays_a, arrays_b;
    FjStructure *x = NULL, *y = NULL;
    if (Py_TYPE(a->self) != Py_TYPE(b->self)) {
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
            fj_structure_note_error_context();
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
    const FjBoundMethod *x = (FjBoundMethod *)a, *y = (FjBoundMethod *)b;
    int same = PyObject_RichCompareBool(x->function, y->function, Py_EQ);
    if (same > 0 && x->self != y->self) {
        same = equal_instances(x, y);
    }
    return same < 0 ? NULL : PyBool_FromLong(same == (operation == Py_EQ));
}

/* The arrays do not count: a custom node may make new ones whenever it is flattened. */
static Py_hash_t
bound_hash(PyObject *op)
{
    const FjBoundMethod *bound = (FjBoundMethod *)op;
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
                                                       : fj_hash_address(bound->self));
    fj_leafbuf_clear(&arrays);
    Py_XDECREF(structure);
    return result < 0 ? -1 : fj_hash_finish(hash);
}

static PyObject *
bound_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjBoundMethod *bound = (FjBoundMethod *)op;
    return Py_BuildValue("(O(OO))", Py_TYPE(op), bound->function, bound->self);
}

static PyMethodDef bound_methods[] = {
    {"__reduce__", bound_reduce, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

const FjHookMethodDef fj_bound_method_hooks[] = {
    {"lower", "lower", FJ_HOOK_OF_FUNCTION, 1, "($self, /, *args, **kwargs)",
     "Traces and lowers the method for these arguments, without running it."},
    {"trace", "trace", FJ_HOOK_OF_FUNCTION, 1, "($self, /, *args, **kwargs)",
     "Traces the method for these arguments, without running it."},
    {"eval_shape", "eval_shape", FJ_HOOK_OF_FUNCTION, 1, "($self, /, *args, **kwargs)",
     "Returns the result of a call with a jax.ShapeDtypeStruct in the place of each array."},
    {"warm_up", "warm_up", FJ_HOOK_OF_OPTIONS, 1, "($self, /, signatures, *, threads=None)",
     "Compiles the method for many signatures, so that calls with them are hits.\n\n"
     "Each signature is a pair (args, kwargs) without the instance."},
    {"partial", "partial", FJ_HOOK_OF_FUNCTION, 1, "($self, /, *args, **kwargs)",
     "Returns the method with the instance and these arguments given once; see\n"
     "FilterJit.partial."},
    {"freeze", "freeze", FJ_HOOK_OF_FUNCTION, 1, "($self, /, *args, max_bytes=None, **kwargs)",
     "Returns the method with the instance and these arguments given once, their arrays\n"
     "constants; see FilterJit.freeze."},
    {"explain", "explain", FJ_HOOK_OF_FUNCTION, 1, "($self, /, *args, **kwargs)",
     "Explains whether a call with these arguments is a hit, and if not, why it compiles."},
    {0},
};

static PyMemberDef bound_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjBoundMethod, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjBoundMethod, weakrefs), READONLY, NULL},
    {"__func__", T_OBJECT, offsetof(FjBoundMethod, function), READONLY, "The FilterJit."},
    {"__self__", T_OBJECT, offsetof(FjBoundMethod, self), READONLY, "The instance."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef bound_getset[] = {
    {"__wrapped__", bound_get_wrapped, NULL,
     "The function that is wrapped, bound to the instance.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(bound_doc, "BoundFilterJit(function, self)\n--\n\n"
                        "A FilterJit bound to an instance.");

static PyType_Slot bound_slots[] = {
    {Py_tp_doc, (void *)bound_doc},
    {Py_tp_new, bound_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, bound_traverse},
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_getattro, bound_getattro},
    {Py_tp_repr, bound_repr},
    {Py_tp_hash, bound_hash},
    {Py_tp_richcompare, bound_richcompare},
    {Py_tp_methods, bound_methods},
    {Py_tp_members, bound_members},
    {Py_tp_getset, bound_getset},
    {0, NULL},
};

PyType_Spec fj_bound_method_spec = {
    .name = "filterjit._core.BoundFilterJit",
    .basicsize = sizeof(FjBoundMethod),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = bound_slots,
};
