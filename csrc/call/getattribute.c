/* A __getattribute__ for classes with jitted methods.
 *
 * equinox.Module has a __getattribute__ in Python.  It turns bound methods into pytrees and
 * otherwise returns the same attributes as object.__getattribute__.  For a jitted `method`,
 * looking up `model.method` without it takes a quarter of the time.  So a class with jitted
 * methods gets a Getattribute(owner, original): `owner` is the class, `original` the
 * __getattribute__ that it inherits.
 *
 *   fast path  For names of FilterJits in the class.  Calls object.__getattribute__.  If that
 *              returns a BoundFilterJit, that is the result.  Otherwise the instance has its
 *              own attribute of this name, and `original` is called, as for all other names.
 *   slow path  super(owner, instance).__getattribute__(name), as in a Python method.
 *
 * Instances of a class take the fast path only if nobody can tell the difference.  Each
 * look-up that finds a jitted method on the slow path checks that
 *
 * - in the MRO of the instance's class, `original` is the only other __getattribute__ between
 *   `owner` and `object`, except for Getattributes of the same `original` before it;
 * - the slow path has returned the same result as the fast path would.
 *
 * Then the class becomes `checked_type`, with its version.  CPython gives a class a new
 * version whenever it or a base changes.  Only one class is remembered: the last one that was
 * checked.
 *
 * Python code can run in the slow path and in `original`.  The fast path runs none if the name
 * and the names of the instance's attributes are exactly str. */
#include "base/state.h"

#include <structmember.h>

#include "call/call_proxy.h"
#include "call/filter_jit.h"

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyTypeObject *owner;
    PyObject *original;
    PyTypeObject *checked_type; /* an address, not a reference */
    unsigned checked_version;   /* its version, or 0 if no class was checked */
} FjGetattribute;

/* True if super() leads from here to `original`, and from there to object.__getattribute__. */
static int
leads_to_original(const FjGetattribute *self, PyTypeObject *type, PyObject *name)
{
    Py_ssize_t i = 0, count = PyTuple_GET_SIZE(type->tp_mro);
    while (i < count && PyTuple_GET_ITEM(type->tp_mro, i) != (PyObject *)self->owner) {
        i++;
    }
    for (int found_original = 0; ++i < count;) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        if (!PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE)) {
            return base == &PyBaseObject_Type && found_original;
        }
        PyObject *found = PyDict_GetItemWithError(base->tp_dict, name);
        if (found == self->original && !found_original) {
            found_original = 1;
        }
        /* A base with jitted methods has a Getattribute, too, which calls the next one. */
        else if (found == NULL ? PyErr_Occurred() != NULL
                               : found_original || !Py_IS_TYPE(found, Py_TYPE(self)) ||
                                     ((FjGetattribute *)found)->original != self->original) {
            return 0;
        }
    }
    return 0;
}

/* A class at the same address as a dead one has a new version: versions are never reused. */
static inline int
is_checked(const FjGetattribute *self, PyTypeObject *type)
{
    return self->checked_type == type && self->checked_version == type->tp_version_tag &&
           self->checked_version != 0;
}

/* Returns the class's FilterJit `name` (borrowed), or NULL. */
static inline PyObject *
jitted_method(PyTypeObject *type, PyObject *name)
{
    PyObject *found = _PyType_Lookup(type, name); /* assigns a version to the class */
    return found != NULL && Py_TYPE(found)->tp_descr_get == fj_filter_jit_bind ? found : NULL;
}

/* The slow path. */
static PyObject *
call_super(const FjGetattribute *self, PyObject *instance, PyObject *name)
{
    PyObject *super = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type,
                                                   (PyObject *)self->owner, instance, NULL);
    PyObject *result =
        super == NULL ? NULL : PyObject_CallMethod(super, "__getattribute__", "(O)", name);
    Py_XDECREF(super);
    return result;
}

/* The slow path, followed by the check. */
static PyObject *
look_up_and_check(FjGetattribute *self, PyObject *instance, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(instance);
    PyObject *method = Py_XNewRef(jitted_method(type, name));
    unsigned version = type->tp_version_tag;
    PyObject *result = call_super(self, instance, name);
    if (method != NULL && result != NULL && Py_TYPE(instance) == type &&
        fj_bound_method_is(result, method, instance)) {
        PyObject *dunder = fj_state_of(Py_TYPE(self))->str___getattribute__;
        if (leads_to_original(self, type, dunder)) {
            self->checked_type = type;
            self->checked_version = version;
        }
        PyErr_Clear(); /* without a successful check the slow path stays */
    }
    Py_XDECREF(method);
    return result;
}

static PyObject *
look_up(FjGetattribute *self, PyObject *instance, PyObject *name)
{
    if (FJ_FREE_THREADED) { /* another thread can change the class: the slow path */
        return call_super(self, instance, name);
    }
    PyTypeObject *type = Py_TYPE(instance);
    if (!is_checked(self, type)) {
        return look_up_and_check(self, instance, name);
    }
    PyObject *method = jitted_method(type, name);
    if (method != NULL) {
        PyObject *found = PyObject_GenericGetAttr(instance, name);
        if (found == NULL || fj_bound_method_is(found, method, instance)) {
            return found;
        }
        Py_DECREF(found); /* the instance's own attribute */
    }
    PyObject *arguments[] = {instance, name};
    return PyObject_Vectorcall(self->original, arguments, 2, NULL);
}

static PyObject *
getattribute_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FjGetattribute *self = (FjGetattribute *)op;
    if (PyVectorcall_NARGS(nargsf) != 2 || kwnames != NULL || !PyUnicode_Check(args[1]) ||
        !PyType_IsSubtype(Py_TYPE(args[0]), self->owner)) {
        return PyObject_Vectorcall(self->original, args, nargsf, kwnames); /* for its error */
    }
    return look_up(self, args[0], args[1]);
}

/* Binds like a Python function. */
static PyObject *
getattribute_bind(PyObject *op, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(op)
                                                   : PyMethod_New(op, instance);
}

static PyObject *
getattribute_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"owner", "original", NULL};
    PyObject *owner, *original;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Getattribute", keywords, &PyType_Type,
                                     &owner, &original)) {
        return NULL;
    }
    FjGetattribute *self = (FjGetattribute *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = getattribute_vectorcall;
        self->owner = (PyTypeObject *)Py_NewRef(owner);
        self->original = Py_NewRef(original);
    }
    return (PyObject *)self;
}

#define GETATTRIBUTE_REFERENCES(WHAT)                                                         \
    WHAT(self->owner);                                                                        \
    WHAT(self->original);

/* No tp_clear: the class breaks the cycle, and can call this until then. */
FJ_GC_TYPE(getattribute, FjGetattribute, GETATTRIBUTE_REFERENCES, 0, (void)0, (void)0)

static PyObject *
getattribute_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjGetattribute *self = (FjGetattribute *)op;
    return Py_BuildValue("O(OO)", Py_TYPE(op), self->owner, self->original);
}

static PyMethodDef getattribute_methods[] = {
    {"__reduce__", getattribute_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef getattribute_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjGetattribute, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(FjGetattribute, original), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot getattribute_slots[] = {
    {Py_tp_doc, "Getattribute(owner, original)\n--\n\n"
                "The __getattribute__ of `owner`. Finds jitted methods without `original`."},
    {Py_tp_new, getattribute_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, getattribute_traverse},
    {Py_tp_dealloc, getattribute_dealloc},
    {Py_tp_descr_get, getattribute_bind},
    {Py_tp_methods, getattribute_methods},
    {Py_tp_members, getattribute_members},
    {0, NULL},
};

FJ_SPEC(fj_getattribute_spec, "filterjit._core.Getattribute", sizeof(FjGetattribute),
        getattribute_slots, Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR);
