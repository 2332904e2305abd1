/* Direct calls: from arrays to an executable, past jax.jit.
 *
 * A variant's `call` is a Direct: a callable around a flat jax.jit.  At first it passes each
 * call on.  After some calls it asks Python for a *plan*: the executable that jax.jit runs for
 * these arrays, and the handlers that make arrays of its results.  The plan and what was true
 * of the call become an *entry*.  A later call that agrees with an entry runs its executable;
 * any other call is passed on to jax.jit.  So is a call that fails before the device begins,
 * so that its error is JAX's own.
 *
 *     direct(x, y)
 *       is anything set that an executable does not know of?   off, profiler
 *       is the configuration that of an entry?                 configuration
 *       are x and y arrays like those of the entry?            type, aval, sharding, layout
 *       execute([constant, y])                                 x is not read by the program
 *       consume_with_handlers(handlers)  -> Output
 *
 * The words on the right are the names of the *ways*, by which calls are counted.
 *
 * What must agree is what jax.jit's own key has: the configuration, and for each array, also
 * for one that the program does not read, its type, aval, sharding, whether it is committed,
 * and its layout.  Avals are interned, so they are compared by identity.  Shardings are
 * compared by identity, then by equality, and the object that was equal is remembered.
 *
 * An executable does not check its arguments: with an array of another dtype or layout, but
 * the same size, it computes nonsense.  So an array is used unchecked only if it is *known*:
 * the very object that was checked in an earlier call, or the very object that this entry's
 * executable has returned in a place whose arrays have passed the check.  A weak reference
 * says so, which keeps nothing alive, and which no other object at the same address matches.
 * What is checked never changes while an array lives.  (A deleted array has no memory, which
 * the executable notices.)
 *
 * This file knows of JAX only what DirectContext was given: functions, by what they return.
 *
 * Python code can run while a plan is made, where shardings are compared, where the program
 * runs (it releases the GIL, so other threads run), and where references are dropped.  The
 * caller holds the arguments; a call holds its entry.
 */
#include "call/direct.h"

#include <structmember.h>

#include "base/state.h"
#include "call/attribute.h"
#include "call/variant.h"

/* ---- what all direct calls share ---- */

/* The objects that Python gives, in the order of the constructor's arguments. */
enum {
    ARRAY_TYPE,    /* the type of arrays; an instance of a subclass is not one */
    GET_AVAL,      /* array -> its aval, an interned object */
    GET_SHARDING,  /* array -> its sharding */
    GET_COMMITTED, /* array -> bool */
    GET_LAYOUT,    /* array -> its layout */
    IS_DELETED,    /* array -> bool */
    CONFIGURATION, /* () -> tuple of values, to be compared by identity */
    GET_SETTING,   /* setting -> its value, to be compared by identity */
    SETTINGS,      /* tuple: settings that are not in the configuration */
    IS_PROFILED,   /* () -> bool: a profiler wants to hear of jax.jit's calls */
    COLLECT,       /* () -> None: frees what other threads could not free */
    PLAN,          /* (source, arrays) -> a plan, or a str that says why there is none */
    NUM_PARTS
};

/* jax.jit frees such garbage at each call if there is some, which cannot be asked. */
#define CALLS_PER_COLLECTION 16

typedef struct {
    PyObject_HEAD PyObject *parts[NUM_PARTS];
    int enabled;
    Py_ssize_t after;         /* how many calls are passed on before a plan is made */
    unsigned long long epoch; /* entries of another epoch are dropped */
    unsigned calls;
} FjDirectContext;

static PyObject *
context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if ((kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) ||
        PyTuple_GET_SIZE(args) != NUM_PARTS ||
        !PyType_Check(PyTuple_GET_ITEM(args, ARRAY_TYPE)) ||
        !PyTuple_Check(PyTuple_GET_ITEM(args, SETTINGS))) {
        PyErr_Format(PyExc_TypeError, "DirectContext takes %d objects, as direct.c lists them",
                     (int)NUM_PARTS);
        return NULL;
    }
    FjDirectContext *self = (FjDirectContext *)type->tp_alloc(type, 0);
    for (Py_ssize_t i = 0; self != NULL && i < NUM_PARTS; i++) {
        self->parts[i] = Py_NewRef(PyTuple_GET_ITEM(args, i));
    }
    return (PyObject *)self;
}

/* forget() */
static PyObject *
context_forget(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ((FjDirectContext *)op)->epoch++;
    Py_RETURN_NONE;
}

static int
context_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjDirectContext *self = (FjDirectContext *)op;
    Py_VISIT(Py_TYPE(op));
    for (Py_ssize_t i = 0; i < NUM_PARTS; i++) {
        Py_VISIT(self->parts[i]);
    }
    return 0;
}

/* It has no tp_clear, like a tuple: other objects break the cycles through it. */
static void
context_dealloc(PyObject *op)
{
    FjDirectContext *self = (FjDirectContext *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    for (Py_ssize_t i = 0; i < NUM_PARTS; i++) {
        Py_XDECREF(self->parts[i]);
    }
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef context_methods[] = {
    {"forget", context_forget, METH_NOARGS,
     "forget($self, /)\n--\n\n"
     "Makes each Direct drop its entries before its next call."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef context_members[] = {
    {"enabled", T_INT, offsetof(FjDirectContext, enabled), 0,
     "Whether calls may be direct; otherwise jax.jit makes all calls."},
    {"after", T_PYSSIZET, offsetof(FjDirectContext, after), 0,
     "How many calls jax.jit makes before a plan is asked for."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(context_doc, "What direct calls share: how to ask JAX, and whether to ask.");

static PyType_Slot context_slots[] = {
    {Py_tp_doc, (void *)context_doc},
    {Py_tp_new, context_new},
    {Py_tp_traverse, context_traverse},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_methods, context_methods},
    {Py_tp_members, context_members},
    {0, NULL},
};

PyType_Spec fj_direct_context_spec = {
    .name = "filterjit._core.DirectContext",
    .basicsize = sizeof(FjDirectContext),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = context_slots,
};

/* ---- entries ---- */

/* What is expected of one argument. */
typedef struct {
    PyObject *aval;
    PyObject *sharding;
    PyObject *equal;     /* the last other sharding that was equal, or NULL */
    PyObject *committed; /* True or False */
    PyObject *layout;    /* NULL if arrays of this aval have only one */
    PyObject *known;     /* weak reference to an array that needs no check, or NULL */
    const void *last;    /* address of the array of the last check */
    Py_ssize_t result;   /* the result of the call before that this argument is, or -1 */
    int is_proven;       /* such a result has passed the check, so all do */
    int is_read;         /* the program reads it */
} Argument;

/* A plan, and the calls that it is for.  Each call that uses it holds a reference. */
typedef struct {
    Py_ssize_t references;
    PyObject *configuration; /* tuple */
    PyObject **settings;     /* their values */
    Py_ssize_t num_settings;
    PyObject *execute;   /* tuple of arrays -> results */
    PyObject *handlers;  /* list */
    PyObject *constants; /* tuple: arrays that are passed before the arguments */
    Py_ssize_t trace;    /* the number of the trace that the program comes from */
    int checks_deleted;  /* a failed run must not be counted by other processes */
    Py_ssize_t num_arguments;
    Py_ssize_t num_read;
    Argument *arguments;
    /* Which arguments are results of the call before is learned in the first calls. */
    int lessons;
    Py_ssize_t num_fed; /* how many arguments have a `result` */
    const void **results; /* addresses of the last results */
    Py_ssize_t num_results;
} Entry;

#define LESSONS 8

/* Visits or clears the references of an entry.  Their list stands once: FOR_EACH(what). */
#define ENTRY_FIELDS(WHAT, entry)                                                             \
    WHAT((entry)->configuration);                                                             \
    WHAT((entry)->execute);                                                                   \
    WHAT((entry)->handlers);                                                                  \
    WHAT((entry)->constants);                                                                 \
    for (Py_ssize_t i_ = 0; (entry)->settings != NULL && i_ < (entry)->num_settings; i_++) {  \
        WHAT((entry)->settings[i_]);                                                          \
    }                                                                                         \
    for (Py_ssize_t i_ = 0; (entry)->arguments != NULL && i_ < (entry)->num_arguments;        \
         i_++) {                                                                              \
        Argument *argument_ = &(entry)->arguments[i_];                                        \
        WHAT(argument_->aval);                                                                \
        WHAT(argument_->sharding);                                                            \
        WHAT(argument_->equal);                                                               \
        WHAT(argument_->committed);                                                           \
        WHAT(argument_->layout);                                                              \
        WHAT(argument_->known);                                                               \
    }

static int
entry_traverse(Entry *entry, visitproc visit, void *arg)
{
    ENTRY_FIELDS(Py_VISIT, entry)
    return 0;
}

/* (P) */
static void
entry_release(Entry *entry)
{
    if (--entry->references > 0) {
        return;
    }
    ENTRY_FIELDS(Py_CLEAR, entry)
    PyMem_Free(entry->settings);
    PyMem_Free(entry->arguments);
    PyMem_Free(entry->results);
    PyMem_Free(entry);
}

/* ---- Direct ---- */

/* The ways that a call can go, and their names. */
#define WAYS(WAY)                                                                             \
    WAY(direct)        /* to the executable */                                                \
    WAY(off)           /* the rest to jax.jit: direct calls are turned off */                 \
    WAY(waiting)       /* there is no entry yet */                                            \
    WAY(profiler)      /* a profiler wants to hear of the call */                             \
    WAY(configuration) /* JAX's configuration is another */                                   \
    WAY(type)          /* an argument is no array of JAX's, as NumPy's and tracers */         \
    WAY(aval)          /* an array has another shape, dtype or weak type */                   \
    WAY(sharding)      /* an array is elsewhere, or was put there in another way */           \
    WAY(layout)        /* an array lies in memory in another order */                         \
    WAY(deleted)       /* an array is deleted, and other processes run the program too */     \
    WAY(failed)  /* the executable refused its arguments */                                   \
    WAY(resting) /* the last checks took long and were in vain */

typedef enum {
#define WAY_MEMBER(name) WAY_##name,
    WAYS(WAY_MEMBER) NUM_WAYS
} Way;

static const char *const way_names[] = {
#define WAY_NAME(name) #name,
    WAYS(WAY_NAME)};

#define MAX_ENTRIES 4
#define MAX_RESTING 256

typedef struct {
    PyObject_HEAD vectorcallfunc vectorcall;
    FjDirectContext *context;
    PyObject *jitted;
    PyObject *source;            /* what a plan is made from */
    PyObject *refusal;           /* why there was no plan the last time, a str, or NULL */
    Entry *entries[MAX_ENTRIES]; /* the one that was used last comes first */
    int num_entries;
    Py_ssize_t unmatched; /* calls that no entry was for, since the last plan */
    Py_ssize_t plan_at;   /* a plan is made when there are so many; -1 for `context->after` */
    unsigned strikes;     /* checks in a row that took long and were in vain */
    unsigned resting;     /* so many calls are passed on without a check */
    unsigned long long epoch;
    unsigned long long counts[NUM_WAYS];
    PyObject *weakrefs;
} FjDirect;

/* (P) */
static void
drop_entries(FjDirect *self)
{
    while (self->num_entries > 0) {
        entry_release(self->entries[--self->num_entries]);
    }
    self->unmatched = 0;
    self->plan_at = -1;
}

static inline PyObject *
ask(const FjDirectContext *context, int part, PyObject *array)
{
    return PyObject_Vectorcall(context->parts[part], &array, 1, NULL);
}

/* ---- making an entry ---- */

/* (P) Stores what is true of an array, by the `flag` of its plan.  0, or -1 with an error. */
static int
describe(const FjDirectContext *context, Argument *argument, PyObject *array, char flag)
{
    argument->result = -1;
    argument->is_read = flag & 1;
    argument->aval = ask(context, GET_AVAL, array);
    argument->sharding = argument->aval == NULL ? NULL : ask(context, GET_SHARDING, array);
    argument->committed =
        argument->sharding == NULL ? NULL : ask(context, GET_COMMITTED, array);
    if (argument->committed == NULL) {
        return -1;
    }
    argument->layout = flag & 2 ? ask(context, GET_LAYOUT, array) : NULL;
    return flag & 2 && argument->layout == NULL ? -1 : 0;
}

/* (P) An entry for a plan and the call that it was made for, or NULL with an error. */
static Entry *
entry_new(const FjDirectContext *context, PyObject *plan, PyObject *configuration,
          PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *execute, *handlers, *constants, *flags, *settings = context->parts[SETTINGS];
    Py_ssize_t trace;
    int checks_deleted;
    if (!fj_expect_tuple(plan, "plan") ||
        !PyArg_ParseTuple(plan, "OO!O!Snp", &execute, &PyList_Type, &handlers, &PyTuple_Type,
                          &constants, &flags, &trace, &checks_deleted)) {
        return NULL;
    }
    if (PyBytes_GET_SIZE(flags) != nargs) {
        PyErr_SetString(PyExc_ValueError, "a plan has one flag for each argument");
        return NULL;
    }
    Entry *entry = PyMem_Calloc(1, sizeof(Entry));
    if (entry == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    entry->references = 1;
    entry->configuration = Py_NewRef(configuration);
    entry->execute = Py_NewRef(execute);
    entry->handlers = Py_NewRef(handlers);
    entry->constants = Py_NewRef(constants);
    entry->trace = trace;
    entry->checks_deleted = checks_deleted;
    entry->lessons = LESSONS;
    entry->num_settings = PyTuple_GET_SIZE(settings);
    entry->num_arguments = nargs;
    entry->num_results = PyList_GET_SIZE(handlers);
    entry->settings = PyMem_Calloc((size_t)entry->num_settings, sizeof(PyObject *));
    entry->arguments = PyMem_Calloc((size_t)nargs, sizeof(Argument));
    entry->results = PyMem_Calloc((size_t)entry->num_results, sizeof(void *));
    if (entry->settings == NULL || entry->arguments == NULL || entry->results == NULL) {
        PyErr_NoMemory();
        entry_release(entry);
        return NULL;
    }
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < entry->num_settings; i++) {
        entry->settings[i] = ask(context, GET_SETTING, PyTuple_GET_ITEM(settings, i));
        failed = entry->settings[i] == NULL;
    }
    for (Py_ssize_t i = 0; !failed && i < nargs; i++) {
        entry->num_read += PyBytes_AS_STRING(flags)[i] & 1;
        failed = describe(context, &entry->arguments[i], args[i],
                          PyBytes_AS_STRING(flags)[i]) < 0;
    }
    if (failed) {
        entry_release(entry);
        return NULL;
    }
    return entry;
}

/* (P) Asks for a plan and makes an entry of it, which becomes the first.  0 if there is no
 * plan or it has failed with an Exception, and -1 with any other error. */
static int
add_entry(FjDirect *self, PyObject *configuration, PyObject *const *args, Py_ssize_t nargs)
{
    FjDirectContext *context = self->context;
    PyObject *arrays = PyTuple_New(nargs);
    if (arrays == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        PyTuple_SET_ITEM(arrays, i, Py_NewRef(args[i]));
    }
    unsigned long long epoch = context->epoch;
    PyObject *plan =
        PyObject_CallFunctionObjArgs(context->parts[PLAN], self->source, arrays, NULL);
    Py_DECREF(arrays);
    if (plan != NULL && PyUnicode_Check(plan)) {
        Py_XSETREF(self->refusal, plan);
        return 0;
    }
    Entry *entry =
        plan == NULL ? NULL : entry_new(context, plan, configuration, args, nargs);
    Py_XDECREF(plan);
    if (entry == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    if (context->epoch != epoch || self->epoch != epoch) { /* forgotten meanwhile */
        entry_release(entry);
        return 0;
    }
    Entry *oldest = NULL;
    if (self->num_entries == MAX_ENTRIES) {
        oldest = self->entries[--self->num_entries];
    }
    memmove(self->entries + 1, self->entries, (size_t)self->num_entries * sizeof(Entry *));
    self->entries[0] = entry;
    self->num_entries++;
    if (oldest != NULL) {
        entry_release(oldest);
    }
    return 0;
}

/* ---- matching a call with an entry ---- */

/* (P) Whether a sharding equals that of an argument.  1, 0, or -1 with an error. */
static int
sharding_equals(Argument *argument, PyObject *sharding)
{
    if (Py_TYPE(sharding) != Py_TYPE(argument->sharding)) {
        return 0;
    }
    int equal = PyObject_RichCompareBool(sharding, argument->sharding, Py_EQ);
    if (equal > 0) {
        Py_XSETREF(argument->equal, Py_NewRef(sharding));
    }
    else if (equal < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        equal = 0;
    }
    return equal;
}

/* (P) Checks an array that is not known.  WAY_direct, another way, or -1 with an error that is
 * no Exception.  Adds to `*compared` if it compares shardings by equality. */
static int
check(const FjDirectContext *context, Argument *argument, PyObject *array,
      Py_ssize_t *compared)
{
    if (Py_TYPE(array) != (PyTypeObject *)context->parts[ARRAY_TYPE]) {
        return WAY_type;
    }
    /* The array holds what is compared by identity. */
    PyObject *found = ask(context, GET_AVAL, array);
    Py_XDECREF(found);
    if (found != argument->aval) {
        PyErr_Clear();
        return WAY_aval;
    }
    found = ask(context, GET_COMMITTED, array);
    Py_XDECREF(found);
    if (found != argument->committed) {
        PyErr_Clear();
        return WAY_sharding;
    }
    found = ask(context, GET_SHARDING, array);
    if (found == NULL) {
        PyErr_Clear();
        return WAY_sharding;
    }
    int equal = found == argument->sharding || found == argument->equal;
    if (!equal) {
        ++*compared;
        equal = sharding_equals(argument, found);
    }
    Py_DECREF(found);
    if (equal <= 0) {
        return equal < 0 ? -1 : WAY_sharding;
    }
    if (argument->layout != NULL) {
        found = ask(context, GET_LAYOUT, array);
        equal = found == argument->layout ||
                (found != NULL && PyObject_RichCompareBool(found, argument->layout, Py_EQ) > 0);
        Py_XDECREF(found);
        if (!equal) { /* or an error: a deleted array has none */
            PyErr_Clear();
            return WAY_layout;
        }
    }
    return WAY_direct;
}

/* Makes an array known to an argument.  Without memory for the reference, it is not. */
static void
make_known(Argument *argument, PyObject *array)
{
    PyObject *reference = PyWeakref_NewRef(array, NULL);
    if (reference == NULL) {
        PyErr_Clear();
    }
    Py_XSETREF(argument->known, reference);
}

static void
forget_result(Entry *entry, Argument *argument)
{
    entry->num_fed -= argument->result >= 0;
    argument->result = -1;
    argument->is_proven = 0;
}

/* After the check of an array: makes it known if it was checked in the call before too, and
 * finds out whether it may be a result of the call before: it has the address. */
static void
learn(Entry *entry, Argument *argument, PyObject *array, Py_ssize_t *cursor)
{
    forget_result(entry, argument); /* it was not, this time */
    if (argument->last == array) {
        make_known(argument, array);
        return;
    }
    argument->last = array;
    for (Py_ssize_t i = 0; entry->lessons > 0 && i < entry->num_results; i++) {
        Py_ssize_t j = (*cursor + i) % entry->num_results;
        if (entry->results[j] == array) {
            argument->result = j;
            entry->num_fed++;
            *cursor = j + 1;
            return;
        }
    }
}

/* (P) Whether a call agrees with an entry: WAY_direct, another way, or -1 with an error. */
static int
matches(FjDirect *self, Entry *entry, PyObject *configuration, PyObject *const *args,
        Py_ssize_t nargs)
{
    const FjDirectContext *context = self->context;
    Py_ssize_t size = PyTuple_GET_SIZE(configuration);
    if (PyTuple_GET_SIZE(entry->configuration) != size ||
        memcmp(((PyTupleObject *)configuration)->ob_item,
               ((PyTupleObject *)entry->configuration)->ob_item,
               (size_t)size * sizeof(PyObject *)) != 0) {
        return WAY_configuration;
    }
    for (Py_ssize_t i = 0; i < entry->num_settings; i++) {
        PyObject *value =
            ask(context, GET_SETTING, PyTuple_GET_ITEM(context->parts[SETTINGS], i));
        Py_XDECREF(value);
        if (value != entry->settings[i]) {
            PyErr_Clear();
            return WAY_configuration;
        }
    }
    if (nargs != entry->num_arguments) {
        return WAY_aval;
    }
    Py_ssize_t checked = 0, compared = 0, cursor = 0;
    int way = WAY_direct;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        Argument *argument = &entry->arguments[i];
        if (fj_compat_weakref_is(argument->known, args[i])) {
            continue;
        }
        way = check(context, argument, args[i], &compared);
        if (way != WAY_direct) {
            break;
        }
        checked++;
        learn(entry, argument, args[i], &cursor);
    }
    if (checked > 0 && entry->lessons > 0) {
        entry->lessons--;
    }
    /* To compare a sharding takes as long as jax.jit takes for the whole array. */
    if (way < 0) {
        return way;
    }
    if (way == WAY_direct ? compared > 4 && compared > nargs / 4 : checked > 4) {
        self->strikes++;
        if (self->strikes > 2) {
            unsigned rest = 1U << (self->strikes < 10 ? self->strikes : 10);
            self->resting = rest < MAX_RESTING ? rest : MAX_RESTING;
        }
    }
    else if (way == WAY_direct) {
        self->strikes = 0;
    }
    for (Py_ssize_t i = 0; way == WAY_direct && entry->checks_deleted && i < nargs; i++) {
        int deleted = fj_take_truth(ask(context, IS_DELETED, args[i]));
        if (deleted != 0) {
            PyErr_Clear();
            return WAY_deleted;
        }
    }
    return way;
}

/* (P) Finds the entry for a call: a way, with an entry that the caller owns if it is
 * WAY_direct, or -1 with an error. */
static int
find_entry(FjDirect *self, PyObject *const *args, Py_ssize_t nargs, Entry **found)
{
    FjDirectContext *context = self->context;
    if (!context->enabled) {
        return WAY_off;
    }
    if (self->epoch != context->epoch) {
        self->epoch = context->epoch;
        drop_entries(self);
    }
    if (self->resting > 0) {
        self->resting--;
        return WAY_resting;
    }
    Py_ssize_t plan_at = self->plan_at < 0 ? context->after : self->plan_at;
    int plans = self->unmatched >= plan_at;
    if (self->num_entries == 0 && !plans) {
        self->unmatched++;
        return WAY_waiting;
    }
    int profiled = fj_take_truth(PyObject_CallNoArgs(context->parts[IS_PROFILED]));
    if (profiled != 0) {
        PyErr_Clear();
        return WAY_profiler;
    }
    PyObject *configuration = PyObject_CallNoArgs(context->parts[CONFIGURATION]);
    if (configuration == NULL || !PyTuple_CheckExact(configuration)) {
        PyErr_Clear();
        Py_XDECREF(configuration);
        return WAY_configuration;
    }
    int way = WAY_waiting;
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int i = 0; i < self->num_entries; i++) {
            Entry *entry = self->entries[i];
            entry->references++;
            way = matches(self, entry, configuration, args, nargs);
            if (way == WAY_direct) {
                /* Other threads may have changed the order meanwhile. */
                if (i > 0 && i < self->num_entries && self->entries[i] == entry) {
                    memmove(self->entries + 1, self->entries, (size_t)i * sizeof(Entry *));
                    self->entries[0] = entry;
                }
                *found = entry;
                Py_DECREF(configuration);
                return way;
            }
            entry_release(entry);
            if (way < 0) {
                Py_DECREF(configuration);
                return way;
            }
        }
        if (attempt > 0) {
            break;
        }
        for (Py_ssize_t i = 0; i < nargs; i++) {
            if (Py_TYPE(args[i]) != (PyTypeObject *)context->parts[ARRAY_TYPE]) {
                Py_DECREF(configuration);
                return WAY_type;
            }
        }
        self->unmatched++;
        if (!plans) {
            break;
        }
        /* Plans are made ever more seldom, so that a call that always differs costs little. */
        self->unmatched = 0;
        self->plan_at = 4 * plan_at + 4;
        if (add_entry(self, configuration, args, nargs) < 0) {
            Py_DECREF(configuration);
            return -1;
        }
    }
    Py_DECREF(configuration);
    return way;
}

/* ---- running an entry ---- */

/* (P) Runs the program of an entry: a new tuple of results, or NULL with an error.  `*began`
 * says whether the device has begun. */
static PyObject *
run(FjState *state, const Entry *entry, PyObject *const *args, int *began)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entry->constants);
    PyObject *inputs = PyTuple_New(count + entry->num_read);
    *began = 0;
    if (inputs == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(inputs, i, Py_NewRef(PyTuple_GET_ITEM(entry->constants, i)));
    }
    for (Py_ssize_t i = 0; i < entry->num_arguments; i++) {
        if (entry->arguments[i].is_read) {
            PyTuple_SET_ITEM(inputs, count++, Py_NewRef(args[i]));
        }
    }
    PyObject *results = PyObject_Vectorcall(entry->execute, &inputs, 1, NULL);
    Py_DECREF(inputs);
    if (results == NULL) {
        return NULL;
    }
    *began = 1;
    PyObject *both[] = {results, entry->handlers};
    PyObject *arrays =
        PyObject_VectorcallMethod(state->str_consume_with_handlers, both, 2, NULL);
    Py_DECREF(results);
    PyObject *tuple = arrays == NULL ? NULL : fj_tuple_of(arrays);
    Py_XDECREF(arrays);
    return tuple;
}

/* (P) Remembers what the results of a call are, which may be arguments of the next.  0, or -1
 * with an error that is no Exception. */
static int
remember_results(const FjDirectContext *context, Entry *entry, PyObject *results)
{
    if (entry->lessons == 0 && entry->num_fed == 0) {
        return 0;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(results), compared = 0;
    for (Py_ssize_t j = 0; j < count && j < entry->num_results; j++) {
        entry->results[j] = PyTuple_GET_ITEM(results, j);
    }
    for (Py_ssize_t i = 0; entry->num_fed > 0 && i < entry->num_arguments; i++) {
        Argument *argument = &entry->arguments[i];
        Py_ssize_t j = argument->result;
        if (j < 0 || j >= count) {
            continue;
        }
        PyObject *result = PyTuple_GET_ITEM(results, j);
        if (!argument->is_proven) { /* another array may have had its address */
            int way = check(context, argument, result, &compared);
            if (way < 0) {
                return -1;
            }
            if (argument->result != j || way != WAY_direct) {
                forget_result(entry, argument);
                continue;
            }
            argument->is_proven = 1;
        }
        make_known(argument, result);
    }
    return 0;
}

/* direct(*arrays) -> Output */
static PyObject *
direct_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FjDirect *self = (FjDirect *)op;
    Entry *entry = NULL;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    int way = kwnames != NULL ? (int)WAY_type : find_entry(self, args, nargs, &entry);
    if (way < 0) {
        return NULL;
    }
    if (FJ_LIKELY(way == WAY_direct)) {
        FjState *state = fj_state_of(Py_TYPE(op));
        FjDirectContext *context = self->context;
        PyObject *output = NULL;
        int began;
        PyObject *results = run(state, entry, args, &began);
        if (FJ_LIKELY(results != NULL)) {
            int remembered = remember_results(context, entry, results);
            output = remembered < 0 ? NULL : fj_output_new(state, results, entry->trace);
            Py_DECREF(results);
        }
        entry_release(entry);
        if (FJ_LIKELY(output != NULL || began || !PyErr_ExceptionMatches(PyExc_Exception))) {
            self->counts[WAY_direct]++;
            if (output != NULL && ++context->calls % CALLS_PER_COLLECTION == 0) {
                PyObject *none = PyObject_CallNoArgs(context->parts[COLLECT]);
                if (none == NULL) {
                    PyErr_Clear();
                }
                Py_XDECREF(none);
            }
            return output;
        }
        PyErr_Clear();
        way = WAY_failed;
    }
    self->counts[way]++;
    return PyObject_Vectorcall(self->jitted, args, nargsf, kwnames);
}

/* ---- the Python type ---- */

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
    FjDirect *self = (FjDirect *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = direct_vectorcall;
        self->context = (FjDirectContext *)Py_NewRef(context);
        self->jitted = Py_NewRef(jitted);
        self->source = Py_NewRef(source);
        self->epoch = self->context->epoch;
        self->plan_at = -1;
    }
    return (PyObject *)self;
}

static int
direct_traverse(PyObject *op, visitproc visit, void *arg)
{
    FjDirect *self = (FjDirect *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->context);
    Py_VISIT(self->jitted);
    Py_VISIT(self->source);
    for (int i = 0; i < self->num_entries; i++) {
        int result = entry_traverse(self->entries[i], visit, arg);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

/* `jitted` stays, as what a call needs: the variant drops this object. */
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
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    PyObject_ClearWeakRefs(op);
    direct_clear(op);
    Py_XDECREF(self->context);
    Py_XDECREF(self->jitted);
    Py_XDECREF(self->source);
    type->tp_free(op);
    Py_DECREF(type);
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
    drop_entries((FjDirect *)op);
    return PyObject_CallMethod(((FjDirect *)op)->jitted, "clear_cache", NULL);
}

static PyObject *
direct_get_counts(PyObject *op, void *Py_UNUSED(closure))
{
    FjDirect *self = (FjDirect *)op;
    PyObject *counts = PyDict_New();
    for (int i = 0; counts != NULL && i < NUM_WAYS; i++) {
        if (self->counts[i] > 0) {
            PyObject *count = PyLong_FromUnsignedLongLong(self->counts[i]);
            if (count == NULL || PyDict_SetItemString(counts, way_names[i], count) < 0) {
                Py_CLEAR(counts);
            }
            Py_XDECREF(count);
        }
    }
    return counts;
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
    {"refusal", T_OBJECT, offsetof(FjDirect, refusal), READONLY,
     "Why there was no plan the last time that one was asked for, or None."},
    {"num_entries", T_INT, offsetof(FjDirect, num_entries), READONLY,
     "How many kinds of calls are direct."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FjDirect, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjDirect, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef direct_getset[] = {
    {"counts", direct_get_counts, NULL,
     "The number of calls by the way that they went: a dict from names in direct.c.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(direct_doc,
             "Direct(context, jitted, source)\n--\n\n"
             "Calls an executable of `jitted` where a call is like earlier ones, else `jitted`."
             "\n\nOther attributes are those of `jitted`. Plans are made from `source`.");

static PyType_Slot direct_slots[] = {
    {Py_tp_doc, (void *)direct_doc},
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
