/* Direct calls: from arrays to an executable, past jax.jit.
 *
 * A variant's `call` is a Direct: a callable around a flat jax.jit.  At first it passes each
 * call on.  After some calls it writes down what is true of one, in an *entry*.  If jax.jit
 * makes that call, and a later call agrees with the entry, it asks Python for a *plan*: the
 * executable that jax.jit has just run for such arrays, and the handlers that make arrays of
 * its results.  From then on a call that agrees with the entry runs its executable; any other
 * call is passed on to jax.jit.  So is a call that fails before the device begins, so that its
 * error is JAX's own.
 *
 *     direct(x, y)
 *       is anything set that an executable does not know of?   off, profiler
 *       is the configuration that of an entry?                 configuration
 *       are x and y arrays like those of the entry?            type, aval, sharding, layout
 *       execute([constant, y])                                 x is not read by the program
 *       consume(results, handlers)  -> Output
 *
 * The words on the right are the names of the *ways*, by which calls are counted.
 * direct_entry.c says what makes a call agree with an entry.
 *
 * Without a GIL, each lane of threads (threads.h) has a Direct of its own, which knows the
 * arrays of its threads: the one that a variant has passes the calls of other lanes on.
 *
 * Python code can run while a plan is made, in direct_entry.c, in jax.jit and its attributes,
 * and where references are dropped.  The caller holds the arguments; a call holds its entry.
 */
#include "call/direct_entry.h"

#include <structmember.h>

#include "base/leafbuf.h"
#include "base/state.h"
#include "call/variant.h"

#define FEW 8 /* arguments that have room on the stack */
#define MAX_RESTING 256
#define SOME 4 /* arrays, whose check takes no longer than that of the configuration */
/* jax.jit frees such garbage at each call if there is some, which cannot be asked. */
#define CALLS_PER_COLLECTION 16
#define MAX_ENTRIES 4

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjDirectContext *context;
    PyObject *jitted;
    PyObject *source;  /* what a plan is made from */
    PyObject *refusal; /* why there was no plan the last time, a str, or NULL */
    FjDirectEntry *entries[MAX_ENTRIES]; /* the one that was used last comes first */
    int num_entries;
    int num_noted;        /* calls that were noted */
    Py_ssize_t unmatched; /* calls that no entry was for, since one was noted */
    Py_ssize_t note_at;   /* one is noted when there are so many; -1 for `context->after` */
    unsigned strikes;     /* checks in a row that took long and were in vain */
    unsigned resting;     /* so many calls are passed on without a check */
    unsigned long long epoch;
    unsigned long long counts[FJ_NUM_WAYS];
    int lane;                  /* of its own calls */
    PyObject *lanes[FJ_LANES]; /* the Directs of the others, or NULL */
    PyObject *weakrefs;
} FjDirect;

/* The Direct of a lane, borrowed; NULL if there is none. */
static inline FjDirect *
of_lane(FjDirect *self, int lane)
{
    return lane == self->lane ? self : (FjDirect *)FJ_LOAD_POINTER(self->lanes[lane]);
}

/* (P) Forgets all calls. */
static void
drop_entries(FjDirect *self)
{
    while (self->num_entries > 0) {
        fj_direct_entry_release(self->entries[--self->num_entries]);
    }
    self->num_noted = 0;
    self->unmatched = 0;
    self->note_at = -1;
}

/* ---- entries and plans ---- */

/* Makes an entry, which is stolen, the first. */
static void
insert_entry(FjDirect *self, FjDirectEntry *entry)
{
    FjDirectEntry *oldest = NULL;
    if (self->num_entries == MAX_ENTRIES) {
        oldest = self->entries[--self->num_entries];
    }
    memmove(self->entries + 1, self->entries,
            (size_t)self->num_entries * sizeof(FjDirectEntry *));
    self->entries[0] = entry;
    self->num_entries++;
    if (oldest != NULL) {
        fj_direct_entry_release(oldest);
    }
}

/* (P) An exception that is set stays. */
static void
remove_entry(FjDirect *self, FjDirectEntry *entry)
{
    for (int i = 0; i < self->num_entries; i++) {
        if (self->entries[i] == entry) {
            self->num_entries--;
            memmove(self->entries + i, self->entries + i + 1,
                    (size_t)(self->num_entries - i) * sizeof(FjDirectEntry *));
            fj_direct_entry_release(entry);
            return;
        }
    }
}

/* (P) Asks for the plan of an entry, which the caller holds.  1; 0 if there is none, and then
 * the entry is removed; or -1 with an error that is no Exception. */
static int
make_plan(FjDirect *self, FjDirectEntry *entry, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *arrays = fj_tuple_from(args, nargs);
    PyObject *plan = arrays == NULL
                         ? NULL
                         : PyObject_CallFunctionObjArgs(self->context->parts[FJ_PLAN],
                                                        self->source, arrays, NULL);
    Py_XDECREF(arrays);
    if (plan != NULL && entry->execute == NULL) { /* else another call was faster */
        if (PyUnicode_Check(plan)) {
            Py_XSETREF(self->refusal, Py_NewRef(plan));
        }
        else {
            fj_direct_entry_set_plan(entry, plan); /* or an error is set */
        }
    }
    int made = fj_direct_differs(entry->execute != NULL);
    Py_XDECREF(plan);
    if (entry->execute == NULL) {
        remove_entry(self, entry);
    }
    return made;
}

/* ---- choosing the way of a call ---- */

/* After a call was compared with an entry: lets calls rest where that takes as long as jax.jit
 * would, again and again. */
static void
weigh_effort(FjDirect *self, const FjDirectEffort *effort, int way, Py_ssize_t nargs)
{
    int in_vain = way == FJ_WAY_direct
                      ? effort->compared > SOME && effort->compared > nargs / SOME
                      : effort->checked > SOME;
    if (in_vain) {
        self->strikes++;
        if (self->strikes > 2) {
            unsigned rest = self->strikes < 9 ? 1U << self->strikes : MAX_RESTING;
            self->resting = rest < MAX_RESTING ? rest : MAX_RESTING;
        }
    }
    else if (way == FJ_WAY_direct) {
        self->strikes = 0;
    }
}

static int
takes_all(const FjDirectContext *context, PyObject *const *args, Py_ssize_t nargs)
{
    int all = 1;
    for (Py_ssize_t i = 0; i < nargs && all; i++) {
        all = fj_direct_takes(context, args[i]);
    }
    return all;
}

/* How many calls that no entry is for are passed on before one is noted. */
static inline Py_ssize_t
calls_before_note(const FjDirect *self)
{
    return self->note_at < 0 ? self->context->after : self->note_at;
}

/* (P) Finds the way of a call, with the entry that it agrees with, which the caller owns, if
 * there is one.  -1 with an error that is no Exception. */
static int
find_entry(FjDirect *self, PyObject *configuration, PyObject *const *args, Py_ssize_t nargs,
           FjDirectEntry **found)
{
    FjDirectContext *context = self->context;
    int way = FJ_WAY_waiting;
    FjDirectEffort effort = {0, 0}; /* of all comparisons */
    for (int i = 0; i < self->num_entries; i++) {
        FjDirectEntry *entry = self->entries[i];
        entry->references++;
        way = fj_direct_entry_matches(entry, context, configuration, args, nargs, &effort);
        if (way == FJ_WAY_direct) {
            weigh_effort(self, &effort, way, nargs);
            if (i > 0 && i < self->num_entries && self->entries[i] == entry) {
                memmove(self->entries + 1, self->entries, (size_t)i * sizeof(FjDirectEntry *));
                self->entries[0] = entry;
            }
            *found = entry;
            return way;
        }
        fj_direct_entry_release(entry);
        if (way < 0) {
            return way;
        }
    }
    weigh_effort(self, &effort, way, nargs);
    if (!takes_all(context, args, nargs)) {
        return FJ_WAY_type;
    }
    Py_ssize_t note_at = calls_before_note(self);
    if (self->unmatched++ < note_at) {
        return way;
    }
    self->unmatched = 0;
    if (++self->num_noted >= MAX_ENTRIES) {
        self->note_at = 4 * note_at + 4; /* ever more seldom: they may all be different */
    }
    FjDirectEntry *entry = fj_direct_entry_new(context, configuration, args, nargs);
    if (entry == NULL) {
        return fj_direct_differs(way); /* a deleted array, or memory: jax.jit will say so */
    }
    entry->references++;
    insert_entry(self, entry);
    *found = entry;
    return way;
}

/* (P) Chooses the way of a call of a Direct that is locked.  If it is FJ_WAY_direct, or
 * jax.jit is to be observed, `*found` is an entry, which the caller owns.  -1 with an error
 * that is no Exception. */
static int
choose_way(FjDirect *self, PyObject *const *args, Py_ssize_t nargs, FjDirectEntry **found)
{
    FjDirectContext *context = self->context;
    if (!FJ_LOAD_INT(context->enabled)) {
        return FJ_WAY_off;
    }
    unsigned long long epoch = FJ_LOAD_COUNT(context->epoch);
    if (self->epoch != epoch) {
        self->epoch = epoch;
        drop_entries(self);
    }
    if (self->resting > 0) {
        self->resting--;
        return FJ_WAY_resting;
    }
    if (self->num_entries == 0 && self->unmatched < calls_before_note(self)) {
        self->unmatched++;
        return FJ_WAY_waiting;
    }
    if (self->num_entries == 0 && !takes_all(context, args, nargs)) {
        return FJ_WAY_type; /* as where Python's numbers are traced */
    }
    int profiled = fj_take_truth(PyObject_CallNoArgs(context->parts[FJ_IS_PROFILED]));
    if (profiled != 0) {
        return fj_direct_differs(FJ_WAY_profiler);
    }
    PyObject *configuration = PyObject_CallNoArgs(context->parts[FJ_CONFIGURATION]);
    int way;
    if (configuration != NULL && PyTuple_CheckExact(configuration)) {
        way = find_entry(self, configuration, args, nargs, found);
    }
    else {
        way = fj_direct_differs(FJ_WAY_configuration);
    }
    Py_XDECREF(configuration);
    if (FJ_UNLIKELY(way == FJ_WAY_direct && (*found)->execute == NULL)) {
        way = FJ_WAY_waiting;
        if ((*found)->has_run) {
            int planned = make_plan(self, *found, args, nargs);
            way = planned < 0 ? -1 : planned > 0 ? (int)FJ_WAY_direct : (int)FJ_WAY_waiting;
        }
    }
    if (way < 0 && *found != NULL) {
        fj_direct_entry_release(*found);
    }
    return way;
}

/* ---- calls ---- */

/* (P) Drops a call's reference to an entry. */
static inline void
release(FjDirect *self, FjDirectEntry *entry)
{
    (void)self;
    FJ_LOCK(self);
    fj_direct_entry_release(entry);
    FJ_UNLOCK();
}

static int
is_host_array(const FjDirect *self, PyObject *argument)
{
    PyObject *host = self->context->parts[FJ_HOST_ARRAY];
    return PyType_IsSubtype(Py_TYPE(argument), (PyTypeObject *)host);
}

/* Calls jax.jit with copies of the arrays in the host's memory.  JAX may read an array where
 * it is, and after the call: what the caller writes into it then would change the result.  A
 * subclass may have another `copy`.  Where nothing is traced, the function gets the arrays. */
static PyObject *
call_with_copies(FjDirect *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *const *parts = self->context->parts;
    PyObject *name = fj_state_of(Py_TYPE(self))->str_copy;
    PyObject *disabled = PyObject_CallNoArgs(parts[FJ_IS_DISABLED]);
    PyObject *room[FEW + 1];
    FjLeafBuf copies;
    int result = disabled == NULL ? -1 : 0;
    fj_leafbuf_init(&copies, room, FEW + 1);
    for (Py_ssize_t i = 0; result == 0 && i < nargs; i++) {
        result = disabled == Py_False && is_host_array(self, args[i])
                     ? fj_leafbuf_take(&copies, PyObject_CallMethodOneArg(parts[FJ_HOST_ARRAY],
                                                                          name, args[i]))
                     : fj_leafbuf_push(&copies, args[i]);
    }
    Py_XDECREF(disabled);
    PyObject *output =
        result < 0 ? NULL
                   : PyObject_Vectorcall(self->jitted, copies.items, (size_t)nargs, NULL);
    PyObject *exception = fj_compat_take_exception(); /* none is set while arrays die */
    fj_leafbuf_clear(&copies);
    fj_compat_give_exception(exception);
    return output;
}

/* Calls jax.jit. */
static PyObject *
call_jitted(FjDirect *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    for (Py_ssize_t i = 0; kwnames == NULL && i < nargs; i++) {
        if (FJ_UNLIKELY(is_host_array(self, args[i]))) {
            return call_with_copies(self, args, nargs);
        }
    }
    return PyObject_Vectorcall(self->jitted, args, nargsf, kwnames);
}

/* Passes a call on to jax.jit.  `entry`, which is stolen, is that of such calls, or NULL. */
static PyObject *
pass_on(FjDirect *self, FjDirectEntry *entry, PyObject *const *args, size_t nargsf,
        PyObject *kwnames)
{
    PyObject *output = call_jitted(self, args, nargsf, kwnames);
    if (entry != NULL) {
        FJ_LOCK(self);
        /* An Output without a number has not passed through JAX (jax_disable_jit). */
        if (entry->execute == NULL && output != NULL &&
            Py_TYPE(output) == fj_state_of(Py_TYPE(self))->output &&
            ((FjOutput *)output)->trace >= 0) {
            entry->has_run = 1;
            entry->trace = ((FjOutput *)output)->trace;
        }
        fj_direct_entry_release(entry);
        FJ_UNLOCK();
    }
    return output;
}

/* (P) Makes an Output of the results of an entry, which are stolen, after learning from them.
 * NULL with an error. */
static PyObject *
output_of(FjDirect *self, FjDirectEntry *entry, PyObject *results)
{
    int learned = 0;
    if (fj_direct_entry_learns(entry)) {
        FJ_LOCK(self);
        learned = fj_direct_entry_remember(entry, self->context, results);
        FJ_UNLOCK();
    }
    if (learned < 0) {
        Py_CLEAR(results);
    }
    return fj_output_new(fj_state_of(Py_TYPE(self)), results, entry->trace);
}

static PyObject *direct_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf,
                                   PyObject *kwnames);

/* A new Direct of the lane of this thread, or NULL with an error. */
static PyObject *
new_direct(PyTypeObject *type, PyObject *context, PyObject *jitted, PyObject *source)
{
    FjDirect *self = (FjDirect *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = direct_vectorcall;
        self->context = (FjDirectContext *)Py_NewRef(context);
        self->jitted = Py_NewRef(jitted);
        self->source = Py_NewRef(source);
        self->epoch = FJ_LOAD_COUNT(self->context->epoch);
        self->note_at = -1;
        self->lane = fj_lane();
    }
    return (PyObject *)self;
}

/* The Direct of the lane of this thread, borrowed; NULL with an error. */
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
    int way = FJ_WAY_type;
    if (kwnames == NULL) {
        FJ_LOCK(self);
        way = choose_way(self, args, PyVectorcall_NARGS(nargsf), &entry);
        FJ_UNLOCK();
    }
    if (FJ_UNLIKELY(way != FJ_WAY_direct)) {
        if (way < 0) {
            return NULL;
        }
        (void)FJ_ADD(self->counts[way], 1);
        return pass_on(self, entry, args, nargsf, kwnames);
    }
    int began;
    PyObject *results = fj_direct_entry_run(entry, context, args, &began);
    PyObject *output = results == NULL ? NULL : output_of(self, entry, results);
    if (FJ_UNLIKELY(output == NULL)) {
        if (!began && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();
            (void)FJ_ADD(self->counts[FJ_WAY_failed], 1);
            return pass_on(self, entry, args, nargsf, kwnames);
        }
        release(self, entry);
        return NULL;
    }
    release(self, entry);
    (void)FJ_ADD(self->counts[FJ_WAY_direct], 1);
    if (fj_count(&context->calls) % CALLS_PER_COLLECTION == 0) {
        PyObject *none = PyObject_CallNoArgs(context->parts[FJ_COLLECT]);
        Py_XDECREF(none);
        if (none == NULL && fj_direct_differs(FJ_WAY_direct) < 0) {
            Py_CLEAR(output);
        }
    }
    return output;
}

/* ---- the Python type: what it tells is of all lanes of threads ---- */

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
    return new_direct(type, context, jitted, source);
}

static int
direct_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjDirect *self = (FjDirect *)op;
    FJ_VISIT_ALL(Py_TYPE(op), self->context, self->jitted, self->source, self->refusal);
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
    drop_entries(self);
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
    FJ_DROP_ALL(self->context, self->jitted, self->source);
    for (int i = 0; i < FJ_LANES; i++) {
        Py_XDECREF(self->lanes[i]);
    }
    fj_object_free(op);
}

static PyObject *
direct_clear_entries(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    for (int i = 0; i < FJ_LANES; i++) {
        FjDirect *lane = of_lane((FjDirect *)op, i);
        if (lane != NULL) {
            FJ_LOCK(lane);
            drop_entries(lane);
            FJ_UNLOCK();
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
direct_get_counts(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *counts = PyDict_New();
    for (int i = 0; counts != NULL && i < FJ_NUM_WAYS; i++) {
        unsigned long long calls = 0;
        for (int j = 0; j < FJ_LANES; j++) {
            const FjDirect *lane = of_lane((FjDirect *)op, j);
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
        FjDirect *lane = of_lane((FjDirect *)op, i);
        if (lane != NULL) {
            FJ_LOCK(lane);
            refusal = Py_XNewRef(lane->refusal);
            FJ_UNLOCK();
        }
    }
    return refusal == NULL ? Py_NewRef(Py_None) : refusal;
}

static PyMethodDef direct_methods[] = {
    {"clear", direct_clear_entries, METH_NOARGS, "clear($self, /)\n--\n\nDrops the entries."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef direct_members[] = {
    {"jitted", T_OBJECT, offsetof(FjDirect, jitted), READONLY, NULL},
    {"num_entries", T_INT, offsetof(FjDirect, num_entries), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjDirect, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjDirect, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef direct_getset[] = {
    {"counts", direct_get_counts, NULL, NULL, NULL},
    {"refusal", direct_get_refusal, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot direct_slots[] = {
    {Py_tp_doc,
     "Direct(context, jitted, source)\n--\n\n"
     "Calls an executable of `jitted` where a call is like earlier ones, else `jitted`."},
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

PyType_Spec fj_direct_spec = {
    .name = "filterjit._core.Direct",
    .basicsize = sizeof(FjDirect),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = direct_slots,
};
