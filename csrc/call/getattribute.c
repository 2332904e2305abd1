/* The __getattribute__ of a class with jitted methods, in the place of one in Python.
 *
 * equinox.Module has a __getattribute__ in Python, which turns bound methods into pytrees and
 * gives back all else as object.__getattribute__ finds it.  Without it `model.method`, where
 * the method is jitted, is found in a quarter of the time.  So a class with such methods gets
 * a Getattribute(owner, original): that passes on to `original`, the __getattribute__ that the
 * class inherits, whatever does not lead to a FilterJit.
 *
 * It must not be seen.  For a class it takes the short way only once
 *
 * - nothing but `original` comes after it in the class's MRO, and object's after that;
 * - `original` itself has been asked for a jitted method, and gave just what we would give.
 *
 * Both are asked again when the class or one of its bases has changed (its version tells), or
 * when another class came in between.  Until then, and where it is not so, it passes on as
 * super().__getattribute__ does.
 *
 * Python code can run wherever it passes on.  On the short way none can: the name is a
 * FilterJit in the class, so that finding it makes a bound method, or finds what the instance
 * has under that name.
 */
#include "call/getattribute.h"

#include <structmember.h>

#include "call/bound_method.h"

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyTypeObject *owner; /* the class among whose attributes it is */
    PyObject *original;  /* the __getattribute__ that it stands for */
    PyTypeObject *known; /* an address: a class of which the short way is right... */
    unsigned version;    /* ... as long as this is its version; 0 for none */
} FjGetattribute;

/* ---- whether the short way is right ---- */

/* Whether a look-up in an instance of `type` goes from here to `original`, and from there to
 * object. */
static int
leads_to_original(const FjGetattribute *self, PyTypeObject *type, PyObject *name)
{
    Py_ssize_t i = 0, count = PyTuple_GET_SIZE(type->tp_mro);
    while (i < count && PyTuple_GET_ITEM(type->tp_mro, i) != (PyObject *)self->owner) {
        i++;
    }
    for (int met = 0; ++i < count;) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(type->tp_mro, i);
        if (!PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE)) {
            return base == &PyBaseObject_Type && met;
        }
        PyObject *found = PyDict_GetItemWithError(base->tp_dict, name);
        if (found == self->original && !met) {
            met = 1;
        }
        /* A Getattribute is that of a base class with jitted methods, and passes on. */
        else if (found == NULL ? PyErr_Occurred() != NULL
                               : met || !Py_IS_TYPE(found, Py_TYPE(self)) ||
                                     ((FjGetattribute *)found)->original != self->original) {
            return 0;
        }
    }
    return 0;
}

static inline int
is_known(const FjGetattribute *self, PyTypeObject *type)
{
    return self->known == type && self->version == type->tp_version_tag && self->version != 0;
}

/* The FilterJit that a class has under `name`, borrowed; NULL for anything else. */
static inline PyObject *
jitted_method(const FjState *state, PyTypeObject *type, PyObject *name)
{
    PyObject *found = _PyType_Lookup(type, name); /* gives the class a version */
    return found != NULL && Py_IS_TYPE(found, state->filter_jit) ? found : NULL;
}

/* ---- looking up ---- */

static PyObject *
pass_on(const FjGetattribute *self, PyObject *instance, PyObject *name)
{
    PyObject *super = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type,
                                                   (PyObject *)self->owner, instance, NULL);
    PyObject *result =
        super == NULL ? NULL : PyObject_CallMethod(super, "__getattribute__", "(O)", name);
    Py_XDECREF(super);
    return result;
}

/* The long way, and what it says of the short one. */
static PyObject *
look_up_and_learn(FjGetattribute *self, const FjState *state, PyObject *instance,
                  PyObject *name)
{
    PyTypeObject *type = Py_TYPE(instance);
    PyObject *method = Py_XNewRef(jitted_method(state, type, name));
    unsigned version = type->tp_version_tag;
    PyObject *result = pass_on(self, instance, name);
    if (method != NULL && result != NULL && Py_TYPE(instance) == type &&
        fj_bound_method_is(state, result, method, instance)) {
        PyObject *dunder = PyUnicode_InternFromString("__getattribute__");
        if (dunder != NULL && leads_to_original(self, type, dunder)) {
            self->known = type;
            self->version = version;
        }
        Py_XDECREF(dunder);
        PyErr_Clear(); /* then the way is the long one */
    }
    Py_XDECREF(method);
    return result;
}

static PyObject *
look_up(FjGetattribute *self, PyObject *instance, PyObject *name)
{
    FjState *state = fj_state_of(Py_TYPE(self));
    PyTypeObject *type = Py_TYPE(instance);
    if (!is_known(self, type)) {
        return look_up_and_learn(self, state, instance, name);
    }
    if (jitted_method(state, type, name) != NULL) {
        PyObject *found = PyObject_GenericGetAttr(instance, name);
        if (found == NULL || Py_IS_TYPE(found, state->bound)) {
            return found;
        }
        Py_DECREF(found); /* the instance has something else under that name */
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
        return PyObject_Vectorcall(self->original, args, nargsf, kwnames); /* its error */
    }
    return look_up(self, args[0], args[1]);
}

/* ---- the Python type ---- */

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

static int
getattribute_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjGetattribute *self = (FjGetattribute *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->owner);
    Py_VISIT(self->original);
    return 0;
}

/* There is no tp_clear: the class lets go of it, and its instances may be looked at until
 * then. */
static void
getattribute_dealloc(PyObject *op)
{
    FjGetattribute *self = (FjGetattribute *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->original);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
getattribute_descr_get(PyObject *op, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(op)
                                                   : PyMethod_New(op, instance);
}

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
    {"__wrapped__", T_OBJECT, offsetof(FjGetattribute, original), READONLY,
     "the __getattribute__ that it stands for"},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    getattribute_doc,
    "Getattribute(owner, original)\n--\n\n"
    "Stands for `original`, the __getattribute__ that the class `owner` inherits, and "
    "finds\njitted methods without it.");

static PyType_Slot getattribute_slots[] = {
    {Py_tp_doc, (void *)getattribute_doc},
    {Py_tp_new, getattribute_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, getattribute_traverse},
    {Py_tp_dealloc, getattribute_dealloc},
    {Py_tp_descr_get, getattribute_descr_get},
    {Py_tp_methods, getattribute_methods},
    {Py_tp_members, getattribute_members},
    {0, NULL},
};

PyType_Spec fj_getattribute_spec = {
    .name = "filterjit._core.Getattribute",
    .basicsize = sizeof(FjGetattribute),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = getattribute_slots,
};
