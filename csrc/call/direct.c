/* Direct calls: from arrays to an executable, bypassing jax.jit.
 *
 * A variant's `call` is a Direct: a callable around a flat jax.jit.  At first it passes every
 * call on.  After some calls it learns an *entry*: the facts about such calls and a *plan*,
 * which consists of the executable that jax.jit ran for such arrays and the handlers that turn
 * its results into arrays (direct_entries.c).  From then on, a call that matches the entry
 * runs the executable.  Any other call is passed on to jax.jit.  So is a call that fails
 * before the device starts: its error is then JAX's own.
 *
 *     direct(x, y)
 *       Is a setting active that the executable ignores?     off, profiler
 *       Is the configuration the entry's?                    configuration
 *       Are x and y arrays like the entry's?                 type, aval, sharding, layout
 *       execute([constant, y])                               the program doesn't read x
 *       make_arrays(results, handlers)  -> Output
 *
 * The words on the right are the *routes* by which calls are counted.
 *
 * Without a GIL, each thread lane (threads.h) has its own Direct, which knows the arrays of
 * its threads.  A variant's Direct passes the calls of other lanes to these.
 *
 * Python code can run in direct_entries.c, in the executable and its handlers, in jax.jit, and
 * when references are dropped.  The caller holds the arguments; a call holds its entry. */
#include "call/direct_entries.h"

#include <structmember.h>

#include "base/leafbuf.h"
#include "base/state.h"
#include "call/variant.h"

#define FEW 8 /* arguments that fit on the stack */
/* jax.jit collects in each call if there is garbage (objects that other
 * threads couldn't free), but C can't ask (FJ_COLLECT). */
#define CALLS_PER_COLLECTION 16

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjDirectContext *context;
    PyObject *jitted;
    PyObject *source; /* the jax.jit or jax.stages.Compiled in which FJ_PLAN finds executables;
                       * None if entries are only added */
    FjDirectEntries entries;
    unsigned long long counts[FJ_NUM_ROUTES];
    int lane;                  /* of its own calls */
    PyObject *lanes[FJ_LANES]; /* Directs of the other lanes, or NULL */
    PyObject *weakrefs;
} FjDirect;

/* Borrowed, or NULL. */
static inline FjDirect *
of_lane(FjDirect *self, int lane)
{
    return lane == self->lane ? self : (FjDirect *)FJ_LOAD_POINTER(self->lanes[lane]);
}

/* (P) */
static inline void
release(FjDirect *self, FjDirectEntry *entry)
{
    (void)self;
    FJ_LOCKED(self, fj_direct_entry_release(entry));
}

static int
is_host_array(const FjDirect *self, PyObject *argument)
{
    PyObject *host = self->context->jax[FJ_HOST_ARRAY];
    return PyType_IsSubtype(Py_TYPE(argument), (PyTypeObject *)host);
}

/* Calls jax.jit with copies of the arrays in host memory.  JAX can read an array in place,
 * even after the call, and a later write by the caller would change the result.  Calls the
 * base type's `copy`, because a subclass can override it.  Copies nothing under
 * jax_disable_jit: the function must get the arrays. */
static PyObject *
call_with_copies(FjDirect *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *const *jax = self->context->jax;
    PyObject *name = fj_state_of(Py_TYPE(self))->str_copy;
    PyObject *disabled = PyObject_CallNoArgs(jax[FJ_IS_DISABLED]);
    int result = disabled == NULL ? -1 : 0;
    FJ_LEAFBUF(copies, FEW + 1);
    for (Py_ssize_t i = 0; result == 0 && i < nargs; i++) {
        result = disabled == Py_False && is_host_array(self, args[i])
                     ? fj_leafbuf_steal(&copies, PyObject_CallMethodOneArg(jax[FJ_HOST_ARRAY],
                                                                           name, args[i]))
                     : fj_leafbuf_push(&copies, args[i]);
    }
    Py_XDECREF(disabled);
    PyObject *output =
        result < 0 ? NULL : fj_call_nested(self->jitted, copies.items, (size_t)nargs, NULL);
    PyObject *exception = fj_compat_get_raised(); /* none is set while arrays die */
    fj_leafbuf_clear(&copies);
    fj_compat_set_raised(exception);
    return output;
}

static PyObject *
call_jitted(FjDirect *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    for (Py_ssize_t i = 0; kwnames == NULL && i < nargs; i++) {
        if (FJ_UNLIKELY(is_host_array(self, args[i]))) {
            return call_with_copies(self, args, nargs);
        }
    }
    return fj_call_nested(self->jitted, args, nargsf, kwnames);
}

/* Passes a call on to jax.jit.  `entry` (stolen) is for such calls, or NULL. */
static PyObject *
pass_on(FjDirect *self, int route, FjDirectEntry *entry, PyObject *const *args, size_t nargsf,
        PyObject *kwnames)
{
    PyObject *output = call_jitted(self, args, nargsf, kwnames);
    if (entry != NULL) {
        FJ_LOCK(self);
        /* An Output without a trace number bypassed JAX (jax_disable_jit). */
        if (entry->execute == NULL /* it has no plan yet */ && output != NULL &&
            Py_TYPE(output) == fj_state_of(Py_TYPE(self))->output &&
            ((FjOutput *)output)->trace >= 0) {
            entry->has_run = 1;
            entry->trace = ((FjOutput *)output)->trace;
        }
        fj_direct_entry_release(entry);
        FJ_UNLOCK();
    }
    (void)FJ_ADD(self->counts[route], 1);
    return output;
}

/* (P) Runs an entry that the call matches, and remembers its results: often they are the next
 * call's arguments, and needn't be checked.  `*began`: the device has started. */
static PyObject *
run_entry(FjDirect *self, FjDirectEntry *entry, PyObject *const *args, int *began)
{
    unsigned long long ran;
    PyObject *results = fj_direct_entry_run(entry, self->context, args, began, &ran);
    if (results != NULL && fj_direct_entry_tracks_results(entry)) {
        int learned;
        FJ_LOCKED(self, learned = fj_direct_entry_remember(entry, self->context, results));
        if (learned < 0) {
            Py_CLEAR(results);
        }
    }
    PyObject *output = fj_output_new(fj_state_of(Py_TYPE(self)), results, entry->trace);
    if (FJ_LIKELY(output != NULL)) {
        ((FjOutput *)output)->ran = ran;
        (void)FJ_ADD(self->counts[FJ_ROUTE_direct], 1);
    }
    return output;
}

static PyObject *direct_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf,
                                   PyObject *kwnames);

/* Returns a Direct for this thread's lane. */
static PyObject *
new_direct(PyTypeObject *type, PyObject *context, PyObject *jitted, PyObject *source)
{
    FjDirect *self = (FjDirect *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = direct_vectorcall;
        self->context = (FjDirectContext *)Py_NewRef(context);
        self->jitted = Py_NewRef(jitted);
        self->source = Py_NewRef(source);
        fj_direct_entries_init(&self->entries, self->context, source != Py_None);
        self->lane = fj_lane();
    }
    return (PyObject *)self;
}

/* Returns the Direct of this thread's lane (borrowed). */
static inline FjDirect *
of_this_lane(FjDirect *self)
{
    int lane = fj_lane();
    FjDirect *found = FJ_LANES == 1 ? self : of_lane(self, lane);
    return FJ_LIKELY(found != NULL)
               ? found
               : (FjDirect *)fj_keep_first((PyObject *)self, &self->lanes[lane],
                                           new_direct(Py_TYPE(self), (PyObject *)self->context,
                                                      self->jitted, self->source));
}

/* direct(*arrays) -> Output */
static PyObject *
direct_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FjDirect *self = of_this_lane((FjDirect *)op);
    if (FJ_UNLIKELY(self == NULL)) {
        return NULL;
    }
    FjDirectContext *context = self->context;
    FjDirectEntry *entry = NULL;
    int route = FJ_ROUTE_type;
    if (kwnames == NULL) {
        FJ_LOCKED(self,
                  route = fj_direct_entries_choose(&self->entries, context, self->source, args,
                                                   PyVectorcall_NARGS(nargsf), &entry));
    }
    if (FJ_UNLIKELY(route != FJ_ROUTE_direct)) {
        if (route < 0) {
            return NULL;
        }
        return pass_on(self, route, entry, args, nargsf, kwnames);
    }
    int began;
    PyObject *output = run_entry(self, entry, args, &began);
    if (FJ_UNLIKELY(output == NULL && !began && PyErr_ExceptionMatches(PyExc_Exception))) {
        PyErr_Clear();
        return pass_on(self, FJ_ROUTE_failed, entry, args, nargsf, kwnames);
    }
    release(self, entry);
    if (FJ_LIKELY(output != NULL) && fj_count(&context->calls) % CALLS_PER_COLLECTION == 0) {
        PyObject *none = PyObject_CallNoArgs(context->jax[FJ_COLLECT]);
        Py_XDECREF(none);
        if (none == NULL && fj_direct_differs(FJ_ROUTE_direct) < 0) {
            Py_CLEAR(output);
        }
    }
    return output;
}

/* ---- the Python type, over all thread lanes ---- */

static const char *const route_names[] = {
#define ROUTE_NAME(name) #name,
    FJ_ROUTES(ROUTE_NAME)};

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
    return new_direct(type, context, jitted, source);
}

/* Keeps everything that a call needs.  The variant drops this object. */
static int
direct_clear(PyObject *op)
{
    FjDirect *self = (FjDirect *)op;
    fj_direct_entries_drop(&self->entries);
    Py_CLEAR(self->entries.why_no_plan);
    return 0;
}

#define DIRECT_REFERENCES(WHAT)                                                               \
    WHAT(self->context);                                                                      \
    WHAT(self->jitted);                                                                       \
    WHAT(self->source);                                                                       \
    for (int i = 0; i < FJ_LANES; i++) {                                                      \
        WHAT(self->lanes[i]);                                                                 \
    }

FJ_GC_TYPE(direct, FjDirect, DIRECT_REFERENCES,
           fj_direct_entries_traverse(&self->entries, visit, arg), (void)direct_clear(op),
           (void)0)

static PyObject *
direct_clear_entries(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    for (int i = 0; i < FJ_LANES; i++) {
        FjDirect *lane = of_lane((FjDirect *)op, i);
        if (lane != NULL) {
            FJ_LOCKED(lane, fj_direct_entries_drop(&lane->entries));
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
direct_add(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    FjDirect *self = of_this_lane((FjDirect *)op);
    if (self == NULL) {
        return NULL;
    }
    if (nargs != 2 || self->entries.learns || !PyTuple_CheckExact(args[1])) {
        return PyErr_Format(PyExc_TypeError,
                            "add takes a plan and a tuple of arrays, and no source");
    }
    int result;
    FJ_LOCKED(self, result = fj_direct_entries_add(&self->entries, self->context, args[0],
                                                   &PyTuple_GET_ITEM(args[1], 0),
                                                   PyTuple_GET_SIZE(args[1])));
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
direct_get_counts(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *counts = PyDict_New();
    for (int i = 0; counts != NULL && i < FJ_NUM_ROUTES; i++) {
        unsigned long long calls = 0;
        for (int j = 0; j < FJ_LANES; j++) {
            const FjDirect *lane = of_lane((FjDirect *)op, j);
            calls += lane == NULL ? 0 : FJ_LOAD_COUNT(lane->counts[i]);
        }
        if (calls > 0) {
            PyObject *count = PyLong_FromUnsignedLongLong(calls);
            if (count == NULL || PyDict_SetItemString(counts, route_names[i], count) < 0) {
                Py_CLEAR(counts);
            }
            Py_XDECREF(count);
        }
    }
    return counts;
}

static PyObject *
direct_get_why_no_plan(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *why_no_plan = NULL;
    for (int i = 0; i < FJ_LANES && why_no_plan == NULL; i++) {
        FjDirect *lane = of_lane((FjDirect *)op, i);
        if (lane != NULL) {
            FJ_LOCKED(lane, why_no_plan = Py_XNewRef(lane->entries.why_no_plan));
        }
    }
    return why_no_plan == NULL ? Py_NewRef(Py_None) : why_no_plan;
}

static PyMethodDef direct_methods[] = {
    {"clear", direct_clear_entries, METH_NOARGS, "clear($self, /)\n--\n\nDrops the entries."},
    FJ_METHOD("add", direct_add, METH_FASTCALL, "($self, plan, arrays, /)",
              "Adds an entry for such arrays, if this Direct has no source."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef direct_members[] = {
    {"jitted", T_OBJECT, offsetof(FjDirect, jitted), READONLY, NULL},
    {"num_entries", T_INT, offsetof(FjDirect, entries.count), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjDirect, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjDirect, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef direct_getset[] = {
    {"counts", direct_get_counts, NULL, NULL, NULL},
    {"why_no_plan", direct_get_why_no_plan, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot direct_slots[] = {
    {Py_tp_doc,
     "Direct(context, jitted, source)\n--\n\n"
     "Calls an executable of `jitted` if a call is like earlier ones, otherwise `jitted`."},
    {Py_tp_new, direct_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, direct_traverse},
    {Py_tp_clear, direct_clear},
    {Py_tp_dealloc, direct_dealloc},
    {Py_tp_methods, direct_methods},
    {Py_tp_members, direct_members},
    {Py_tp_getset, direct_getset},
    {0, NULL},
};

FJ_SPEC(fj_direct_spec, "filterjit._core.Direct", sizeof(FjDirect), direct_slots,
        Py_TPFLAGS_HAVE_VECTORCALL);
