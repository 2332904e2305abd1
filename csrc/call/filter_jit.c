/* The Python type FilterJit, except for its calls (call.c).
 *
 * Python code can run in all of its methods: they call methods of `options`, or build the
 * wrapped function from a Structure.
 */
#include "call/filter_jit.h"

#include <structmember.h>

#include "base/hash.h"
#include "walk/build.h"
#include "call/bound_method.h"
#include "call/call.h"

static FjFilterJit *
allocate(PyTypeObject *type)
{
    FjFilterJit *self = (FjFilterJit *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = fj_call;
    }
    return self;
}

static PyObject *
filter_jit_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "options", "signature", "attributes", NULL};
    PyObject *function, *options, *signature, *attributes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO!:FilterJit", keywords, &function,
                                     &options, &signature, &PyDict_Type, &attributes)) {
        return NULL;
    }
    FjFilterJit *self = allocate(type);
    if (self != NULL) {
        self->function = Py_NewRef(function);
        self->options = Py_NewRef(options);
        self->signature = Py_NewRef(signature);
        self->dict = Py_NewRef(attributes);
    }
    return (PyObject *)self;
}

PyObject *
fj_filter_jit_rebuild(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    FjState *state = PyModule_GetState(module);
    if (nargs != 2 || Py_TYPE(args[0]) != state->cache) {
        PyErr_SetString(PyExc_TypeError, "rebuild() takes (cache, arrays)");
        return NULL;
    }
    FjCache *cache = (FjCache *)args[0];
    PyObject *arrays = fj_tuple_of(args[1]);
    if (arrays == NULL) {
        return NULL;
    }
    FjFilterJit *self = NULL;
    PyObject *dict = NULL;
    if (PyTuple_GET_SIZE(arrays) != cache->function->open_leaves) {
        PyErr_Format(PyExc_ValueError, "this function holds %zd arrays, not %zd",
                     cache->function->open_leaves, PyTuple_GET_SIZE(arrays));
    }
    else {
        dict = cache->attributes == NULL ? PyDict_New() : PyDict_Copy(cache->attributes);
        self = dict == NULL ? NULL : allocate(state->filter_jit);
    }
    if (self == NULL) {
        Py_XDECREF(dict);
        Py_DECREF(arrays);
        return NULL;
    }
    self->arrays = arrays;
    self->cache = (FjCache *)Py_NewRef((PyObject *)cache);
    self->options = Py_NewRef(cache->options);
    self->signature = Py_NewRef(Py_None);
    self->dict = dict;
    return (PyObject *)self;
}

static int
filter_jit_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjFilterJit *self = (FjFilterJit *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->function);
    Py_VISIT(self->options);
    Py_VISIT(self->signature);
    Py_VISIT(self->cache);
    Py_VISIT(self->arrays);
    Py_VISIT(self->last);
    Py_VISIT(self->dict);
    return 0;
}

static int
filter_jit_clear(PyObject *op)
{
    FjFilterJit *self = (FjFilterJit *)op;
    Py_CLEAR(self->last);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->signature);
    Py_CLEAR(self->function);
    /* `options`, `cache` and `arrays` stay: finalizers may still call the object, and calls
     * and methods read them.  Each cycle through them is broken by clearing the members above,
     * or the table of the Cache. */
    return 0;
}

static void
filter_jit_dealloc(PyObject *op)
{
    FjFilterJit *self = (FjFilterJit *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    filter_jit_clear(op);
    Py_XDECREF(self->options);
    Py_XDECREF(self->cache);
    Py_XDECREF(self->arrays);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- the wrapped function ---- */

static PyObject *
filter_jit_get_wrapped(PyObject *op, void *Py_UNUSED(closure))
{
    FjFilterJit *self = (FjFilterJit *)op;
    if (self->function == NULL) {
        if (self->cache == NULL) {
            PyErr_SetString(PyExc_AttributeError, "__wrapped__");
            return NULL;
        }
        PyObject *function =
            fj_build_tree(self->cache->function, ((PyTupleObject *)self->arrays)->ob_item);
        if (function == NULL) {
            return NULL;
        }
        Py_XSETREF(self->function, function);
    }
    return Py_NewRef(self->function);
}

static PyObject *
filter_jit_repr(PyObject *op)
{
    PyObject *wrapped = filter_jit_get_wrapped(op, NULL);
    if (wrapped == NULL) {
        return NULL;
    }
    PyObject *text = PyUnicode_FromFormat("<filter_jit of %R>", wrapped);
    Py_DECREF(wrapped);
    return text;
}

static PyObject *
filter_jit_descr_get(PyObject *op, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (instance == NULL || instance == Py_None) {
        return Py_NewRef(op);
    }
    return fj_bound_method_new(fj_state_of(Py_TYPE(op)), op, instance);
}

/* Tells Python that this is now an attribute of a class: options.became_method(self,
 * owner). */
static PyObject *
filter_jit_set_name(PyObject *op, PyObject *args)
{
    PyObject *owner, *name;
    if (!PyArg_ParseTuple(args, "OO:__set_name__", &owner, &name)) {
        return NULL;
    }
    return PyObject_CallMethodObjArgs(((FjFilterJit *)op)->options,
                                      fj_state_of(Py_TYPE(op))->str_became_method, op, owner,
                                      NULL);
}

/* Two FilterJits are equal if they share their Cache, which they do if their functions and
 * their options are equal.  One whose function holds arrays is only equal to itself and has no
 * hash, since arrays have none. */
static Py_hash_t
filter_jit_hash(PyObject *op)
{
    FjFilterJit *self = (FjFilterJit *)op;
    if (fj_call_prepare(self) < 0) {
        return -1;
    }
    if (PyTuple_GET_SIZE(self->arrays) > 0) {
        PyErr_SetString(
            PyExc_TypeError,
            "unhashable: this filter_jit wraps a pytree that holds arrays; pass it "
            "as an argument, or keep it in a field that is not static");
        return -1;
    }
    return fj_hash_finish(fj_hash_address(self->cache));
}

static PyObject *
filter_jit_richcompare(PyObject *a, PyObject *b, int operation)
{
    if (Py_TYPE(a) != Py_TYPE(b) || (operation != Py_EQ && operation != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    FjFilterJit *x = (FjFilterJit *)a, *y = (FjFilterJit *)b;
    int same = a == b;
    if (!same) {
        if (fj_call_prepare(x) < 0 || fj_call_prepare(y) < 0) {
            return NULL;
        }
        same = x->cache == y->cache && PyTuple_GET_SIZE(x->arrays) == 0;
    }
    return PyBool_FromLong(same == (operation == Py_EQ));
}

/* ---- methods ---- */

/* _parts() -> (cache, arrays) */
static PyObject *
filter_jit_parts(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjFilterJit *self = (FjFilterJit *)op;
    if (fj_call_prepare(self) < 0) {
        return NULL;
    }
    return Py_BuildValue("(OO)", self->cache, self->arrays);
}

static PyObject *
filter_jit_get_variants(PyObject *op, void *Py_UNUSED(closure))
{
    return PyObject_CallMethodOneArg(((FjFilterJit *)op)->options,
                                     fj_state_of(Py_TYPE(op))->str_variants, op);
}

#if PY_VERSION_HEX >= 0x030E0000
/* Since Python 3.14 a wrapper has a copy of `__annotate__`, from which a Python function makes
 * its `__annotations__` when they are read.  A FilterJit returns those of the function that it
 * wraps, unless it has been given its own. */
static PyObject *
filter_jit_get_annotations(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *name = PyUnicode_InternFromString("__annotations__");
    PyObject *wrapped = NULL, *result = NULL;
    if (name == NULL) {
        return NULL;
    }
    if (((FjFilterJit *)op)->dict != NULL) {
        result = Py_XNewRef(PyDict_GetItemWithError(((FjFilterJit *)op)->dict, name));
    }
    if (result == NULL && !PyErr_Occurred() &&
        (wrapped = filter_jit_get_wrapped(op, NULL)) != NULL) {
        result = PyObject_GetAttr(wrapped, name);
        Py_DECREF(wrapped);
    }
    Py_DECREF(name);
    return result;
}

static int
filter_jit_set_annotations(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    PyObject *dict = PyObject_GenericGetDict(op, NULL);
    if (dict == NULL) {
        return -1;
    }
    int result = value == NULL ? PyDict_DelItemString(dict, "__annotations__")
                               : PyDict_SetItemString(dict, "__annotations__", value);
    if (result < 0 && value == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_SetString(PyExc_AttributeError, "__annotations__");
    }
    Py_DECREF(dict);
    return result;
}
#endif

static PyMethodDef filter_jit_methods[] = {
    {"_lookup", (PyCFunction)(void (*)(void))fj_call_lookup, METH_FASTCALL | METH_KEYWORDS,
     "_lookup($self, /, *args, **kwargs)\n--\n\n"
     "Returns (variant, arrays) of a call with these arguments, without making the call.\n\n"
     "If there is no variant, one is compiled, which is in no Cache: see\n"
     "Cache.insert_traced."},
    {"_peek", (PyCFunction)(void (*)(void))fj_call_peek, METH_FASTCALL | METH_KEYWORDS,
     "_peek($self, /, *args, **kwargs)\n--\n\n"
     "Returns (variant or None, structure, arrays) of a call, without making the call.\n\n"
     "Nothing is compiled."},
    {"_parts", filter_jit_parts, METH_NOARGS,
     "_parts($self, /)\n--\n\n"
     "Returns (cache, arrays): as a pytree, the aux data and the children."},
    {"__set_name__", filter_jit_set_name, METH_VARARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

const FjHookMethodDef fj_filter_jit_hooks[] = {
    {"lower", "lower", FJ_HOOK_OF_OPTIONS, 1, "($self, /, *args, **kwargs)",
     "Traces and lowers the function for these arguments, without running it.\n\n"
     "Any array may be given as a jax.ShapeDtypeStruct. Returns a `Lowered`, whose `compile`\n"
     "returns a function that can be called and saved.\n\n"
     "Examples:\n"
     "    >>> f = filter_jit(lambda x, n: n * x)\n"
     "    >>> compiled = f.lower(jax.ShapeDtypeStruct((2,), jnp.float32), 3).compile()\n"
     "    >>> compiled(jnp.ones(2), 3)\n"
     "    Array([3., 3.], dtype=float32)"},
    {"trace", "trace", FJ_HOOK_OF_OPTIONS, 1, "($self, /, *args, **kwargs)",
     "Traces the function for these arguments, without running it.\n\n"
     "Takes what `lower` takes, and returns a `Traced`."},
    {"eval_shape", "eval_shape", FJ_HOOK_OF_OPTIONS, 1, "($self, /, *args, **kwargs)",
     "Returns the result of a call with a jax.ShapeDtypeStruct in the place of each array.\n\n"
     "Takes what `lower` takes. Nothing is compiled and nothing runs.\n\n"
     "Examples:\n"
     "    >>> filter_jit(lambda x: {'sum': x.sum(), 'n': 1}).eval_shape(jnp.ones((2, 3)))\n"
     "    {'n': 1, 'sum': ShapeDtypeStruct(shape=(), dtype=float32)}"},
    {"warm_up", "warm_up", FJ_HOOK_OF_OPTIONS, 1, "($self, /, signatures, *, threads=None)",
     "Compiles the function for many signatures, so that calls with them are hits.\n\n"
     "Each signature is a pair (args, kwargs) of what `lower` takes. XLA compiles `threads`\n"
     "of them at once, by default one for each core. A signature that fails is logged, and\n"
     "the others are compiled. Returns a `WarmUp` with the time or the error of each.\n\n"
     "Examples:\n"
     "    >>> f = filter_jit(lambda x: x + 1)\n"
     "    >>> sizes = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (1, 8)]\n"
     "    >>> print(f.warm_up([((x,), {}) for x in sizes]))\n"
     "    compiled 2 of 2 in ..."},
    {"partial", "partial", FJ_HOOK_OF_OPTIONS, 1, "($self, /, *args, **kwargs)",
     "Returns the function with these arguments given once.\n\n"
     "Their containers are copied, now and whenever `args` and `keywords` are read, so\n"
     "changes to containers have no effect. NumPy arrays and static values are not copied: a\n"
     "change of one is noticed by the next call, as in any call. Raises ValueError for\n"
     "arguments that the function donates.\n\n"
     "Examples:\n"
     "    >>> f = filter_jit(lambda model, x: model['w'] * x)\n"
     "    >>> g = f.partial({'w': jnp.ones(2)})\n"
     "    >>> g(jnp.array([1.0, 2.0]))\n"
     "    Array([1., 2.], dtype=float32)"},
    {"freeze", "freeze", FJ_HOOK_OF_OPTIONS, 1, "($self, /, *args, max_bytes=None, **kwargs)",
     "Returns the function with these arguments given once, their arrays constants.\n\n"
     "A call passes the other arguments only, so it costs what a program without these\n"
     "arguments costs. The arguments are as they are now: containers and NumPy arrays are\n"
     "copied, and a Module that is changed afterwards does not matter. The programs belong\n"
     "to the function that is returned, and are freed with it: freezing again compiles "
     "again,\n"
     "also for equal arguments. The arrays are held twice, by the function for later traces\n"
     "and by each of its programs. What XLA can compute from constants alone, it computes\n"
     "when it compiles, so results may differ from those of a plain call by rounding.\n\n"
     "Arrays of more than `max_bytes` bytes stay arguments, and so do tracers, PRNG keys and\n"
     "arrays that are on several devices or not in the device's own memory. Without\n"
     "`max_bytes`, a FreezeWarning tells of arrays of more than 256 KiB, which do not pay.\n"
     "An argument of the function that is called max_bytes can be given by position.\n\n"
     "Raises ValueError for arguments that the function donates and for a function with\n"
     "shardings, and RuntimeError for arrays that have been deleted. A trace raises for\n"
     "those that have been deleted since, and ValueError for a static value that was changed\n"
     "in place.\n\n"
     "Examples:\n"
     "    >>> predict = filter_jit(lambda model, x: model(x))\n"
     "    >>> serve = predict.freeze(eqx.nn.Linear(2, 1, key=jax.random.key(0)))\n"
     "    >>> serve(jnp.ones(2)).shape\n"
     "    (1,)"},
    {"explain", "explain", FJ_HOOK_OF_OPTIONS, 1, "($self, /, *args, **kwargs)",
     "Explains whether a call with these arguments is a hit, and if not, why it compiles.\n\n"
     "Returns an `Explanation`. Nothing is traced and nothing runs.\n\n"
     "Examples:\n"
     "    >>> @filter_jit\n"
     "    ... def scale(x, by):\n"
     "    ...     return by * x\n"
     "    >>> y = scale(jnp.ones(2), 2)\n"
     "    >>> print(scale.explain(jnp.ones(2), 3))\n"
     "    `scale`: compiles again because\n"
     "      `by`: different static value: was the int 2, is the int 3\n"
     "      -> ..."},
    {"report", "report", FJ_HOOK_OF_OPTIONS, 0, "($self, /)",
     "Returns a `Report` of where the time of the function's calls went, by variant."},
    {"cache_info", "cache_info", FJ_HOOK_OF_OPTIONS, 0, "($self, /)",
     "Returns CacheInfo(hits, misses, variants, maxsize, bytes).\n\n"
     "Examples:\n"
     "    >>> f = filter_jit(lambda x: x + 1)\n"
     "    >>> ys = [f(jnp.ones(2)) for _ in range(3)]\n"
     "    >>> f.cache_info()\n"
     "    CacheInfo(hits=2, misses=1, variants=1, maxsize=4096, bytes=...)"},
    {"clear_cache", "clear_cache", FJ_HOOK_OF_OPTIONS, 0, "($self, /)",
     "Drops all compiled programs of the function, also those of equal functions that were\n"
     "jitted with equal options: they share their programs."},
    {"__reduce__", "reduce", FJ_HOOK_OF_OPTIONS, 0, "($self, /)", NULL},
    {0},
};

static PyMemberDef filter_jit_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjFilterJit, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(FjFilterJit, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjFilterJit, weakrefs), READONLY, NULL},
    {"_options", T_OBJECT, offsetof(FjFilterJit, options), READONLY,
     "The object whose methods are the hooks of a call."},
    {"_given_signature", T_OBJECT, offsetof(FjFilterJit, signature), READONLY,
     "The inspect.Signature that it was created with, or None."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef filter_jit_getset[] = {
    {"__wrapped__", filter_jit_get_wrapped, NULL,
     "The function, or other callable pytree, that is wrapped.", NULL},
    {"variants", filter_jit_get_variants, NULL,
     "A list of its variants, one for each static structure whose programs it keeps.", NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
#if PY_VERSION_HEX >= 0x030E0000
    {"__annotations__", filter_jit_get_annotations, filter_jit_set_annotations, NULL, NULL},
#endif
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(filter_jit_doc, "FilterJit(function, options, signature, attributes)\n--\n\n"
                             "A jitted function of arguments that are any pytrees. "
                             "filterjit.filter_jit returns one.\n\n"
                             "In annotations, FilterJit[[int, str], bool] has parameters like "
                             "Callable[[int, str], bool].");

static PyType_Slot filter_jit_slots[] = {
    {Py_tp_doc, (void *)filter_jit_doc},
    {Py_tp_new, filter_jit_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, filter_jit_traverse},
    {Py_tp_clear, filter_jit_clear},
    {Py_tp_dealloc, filter_jit_dealloc},
    {Py_tp_repr, filter_jit_repr},
    {Py_tp_hash, filter_jit_hash},
    {Py_tp_richcompare, filter_jit_richcompare},
    {Py_tp_descr_get, filter_jit_descr_get},
    {Py_tp_methods, filter_jit_methods},
    {Py_tp_members, filter_jit_members},
    {Py_tp_getset, filter_jit_getset},
    {0, NULL},
};

PyType_Spec fj_filter_jit_spec = {
    .name = "filterjit.FilterJit",
    .basicsize = sizeof(FjFilterJit),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = filter_jit_slots,
};
