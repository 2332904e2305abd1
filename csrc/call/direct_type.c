/* The Python type Direct: what it holds, and what it tells of its calls, which direct.c makes.
 *
 * What it tells is of all lanes of threads.  Python code can run in the attributes of
 * `jitted`, and where references are dropped.
 */
#include "call/direct.h"

#include <structmember.h>

#include "base/state.h"
#include "call/attribute.h"

static const char *const way_names[] = {
#define WAY_NAME(name) #name,
    FJ_WAYS(WAY_NAME)};

static PyObject *
direct_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"context", "jitted", "source", NULL};
    PyObject *context, *jitted, *source;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO:Direct", keywords,
                                     fj_state_of(type)->direct_context, &context, &jitted,
                                     &source)) {
        return NULL;
    }
    return fj_direct_new(type, context, jitted, source);
}

static int
direct_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjDirect *self = (FjDirect *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->context);
    Py_VISIT(self->jitted);
    Py_VISIT(self->source);
    Py_VISIT(self->refusal);
    for (int i = 0; i < FJ_LANES; i++) {
        Py_VISIT(self->lanes[i]);
    }
    for (int i = 0; i < self->num_entries; i++) {
        int result = fj_direct_entry_traverse(self->entries[i], visit, arg);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

/* What a call needs stays, as `jitted`: the variant drops this object. */
static int
direct_clear(PyObject *op)
{
    FjDirect *self = (FjDirect *)op;
    fj_direct_drop_entries(self);
    Py_CLEAR(self->refusal);
    return 0;
}

static void
direct_dealloc(PyObject *op)
{
    FjDirect *self = (FjDirect *)op;
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    direct_clear(op);
    Py_XDECREF(self->context);
    Py_XDECREF(self->jitted);
    Py_XDECREF(self->source);
    for (int i = 0; i < FJ_LANES; i++) {
        Py_XDECREF(self->lanes[i]);
    }
    fj_object_free(op);
}

static PyObject *
direct_getattro(PyObject *op, PyObject *name)
{
    return fj_attribute_get(op, name, ((FjDirect *)op)->jitted);
}

/* clear_cache() */
static PyObject *
direct_clear_cache(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    for (int i = 0; i < FJ_LANES; i++) {
        FjDirect *lane = fj_direct_of_lane((FjDirect *)op, i);
        if (lane != NULL) {
            FJ_LOCK(lane);
            fj_direct_drop_entries(lane);
            FJ_UNLOCK();
        }
    }
    return PyObject_CallMethod(((FjDirect *)op)->jitted, "clear_cache", NULL);
}

static PyObject *
direct_get_counts(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *counts = PyDict_New();
    for (int i = 0; counts != NULL && i < FJ_NUM_WAYS; i++) {
        unsigned long long calls = 0;
        for (int j = 0; j < FJ_LANES; j++) {
            const FjDirect *lane = fj_direct_of_lane((FjDirect *)op, j);
            calls += lane == NULL ? 0 : FJ_LOAD_COUNT(lane->counts[i]);
        }
        if (calls > 0) {
            PyObject *count = PyLong_FromUnsignedLongLong(calls);
            if (count == NULL || PyDict_SetItemString(counts, way_names[i], count) < 0) {
                Py_CLEAR(counts);
            }
            Py_XDECREF(count);
        }
    }
    return counts;
}

static PyObject *
direct_get_refusal(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *refusal = NULL;
    for (int i = 0; i < FJ_LANES && refusal == NULL; i++) {
        FjDirect *lane = fj_direct_of_lane((FjDirect *)op, i);
        if (lane != NULL) {
            FJ_LOCK(lane);
            refusal = Py_XNewRef(lane->refusal);
            FJ_UNLOCK();
        }
    }
    return refusal == NULL ? Py_NewRef(Py_None) : refusal;
}

static PyMethodDef direct_methods[] = {
    {"clear_cache", direct_clear_cache, METH_NOARGS,
     "clear_cache($self, /)\n--\n\n"
     "Drops the entries, and clears the cache of jax.jit."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef direct_members[] = {
    {"jitted", T_OBJECT, offsetof(FjDirect, jitted), READONLY,
     "The callable that makes the calls that are not direct."},
    {"num_entries", T_INT, offsetof(FjDirect, num_entries), READONLY,
     "How many kinds of calls are direct, of the lane of threads that it was made in."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjDirect, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjDirect, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef direct_getset[] = {
    {"counts", direct_get_counts, NULL,
     "The number of calls by the way that they went: a dict from names in direct.c.", NULL},
    {"refusal", direct_get_refusal, NULL,
     "Why there was no plan the last time that one was wanted, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot direct_slots[] = {
    {Py_tp_doc,
     "Direct(context, jitted, source)\n--\n\n"
     "Calls an executable of `jitted` where a call is like earlier ones, else `jitted`."
     "\n\nOther attributes are those of `jitted`. Plans are made from `source`."},
    {Py_tp_new, direct_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_getattro, direct_getattro},
    {Py_tp_traverse, direct_traverse},
    {Py_tp_clear, direct_clear},
    {Py_tp_dealloc, direct_dealloc},
    {Py_tp_methods, direct_methods},
    {Py_tp_members, direct_members},
    {Py_tp_getset, direct_getset},
    {0, NULL},
};

PyType_Spec fj_direct_spec = {
    .name = "filterjit._core.Direct",
    .basicsize = sizeof(FjDirect),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = direct_slots,
};
