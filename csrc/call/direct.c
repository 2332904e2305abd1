/* Direct calls: from arrays to an executable, past jax.jit.
 *
 * A variant's `call` is a Direct: a callable around a flat jax.jit.  At first it passes each
 * call on.  After some calls it writes down what is true of one, in an *entry*.  If jax.jit
 * makes that call, and the next call agrees with the entry, it asks Python for a *plan*: the
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
    CONSUME,       /* (results of an executable, handlers) -> list of arrays */
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
     "How many calls jax.jit makes before one is noted, of which the next is direct."},
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

/* What is true of some calls, and their plan.  Each call that uses it holds a reference. */
typedef struct {
    Py_ssize_t references;
    int has_run;             /* jax.jit has made such a call */
    PyObject *configuration; /* tuple */
    PyObject **settings;     /* their values */
    Py_ssize_t num_settings;
    Py_ssize_t num_arguments;
    Argument *arguments;
    /* The plan. */
    PyObject *execute;   /* tuple of arrays -> results; NULL until there is a plan */
    PyObject *handlers;  /* list */
    PyObject *constants; /* tuple: arrays that are passed before the arguments */
    Py_ssize_t trace;    /* the number of the trace that the program comes from */
    Py_ssize_t num_read; /* how many arguments the program reads */
    int checks_deleted;  /* a failed run must not be counted by other processes */
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
    Py_ssize_t unmatched; /* calls that no entry was for, since one was noted */
    Py_ssize_t note_at;   /* one is noted when there are so many; -1 for `context->after` */
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
    self->note_at = -1;
}

static inline PyObject *
ask(const FjDirectContext *context, int part, PyObject *array)
{
    return PyObject_Vectorcall(context->parts[part], &array, 1, NULL);
}

/* ---- making an entry ---- */

/* (P) Stores what is true of an array.  0, or -1 with an error. */
static int
describe(const FjDirectContext *context, Argument *argument, PyObject *array)
{
    argument->result = -1;
    return (argument->aval = ask(context, GET_AVAL, array)) == NULL ||
                   (argument->sharding = ask(context, GET_SHARDING, array)) == NULL ||
                   (argument->committed = ask(context, GET_COMMITTED, array)) == NULL ||
                   (argument->layout = ask(context, GET_LAYOUT, array)) == NULL
               ? -1
               : 0;
}

/* (P) An entry, without a plan, for calls that are like this one; NULL with an error. */
static Entry *
entry_new(const FjDirectContext *context, PyObject *configuration, PyObject *const *args,
          Py_ssize_t nargs)
{
    PyObject *settings = context->parts[SETTINGS];
    Entry *entry = PyMem_Calloc(1, sizeof(Entry));
    if (entry == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    entry->references = 1;
    entry->configuration = Py_NewRef(configuration);
    entry->lessons = LESSONS;
    entry->num_settings = PyTuple_GET_SIZE(settings);
    entry->num_arguments = nargs;
    entry->settings = PyMem_Calloc((size_t)entry->num_settings, sizeof(PyObject *));
    entry->arguments = PyMem_Calloc((size_t)nargs, sizeof(Argument));
    if (entry->settings == NULL || entry->arguments == NULL) {
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
        failed = describe(context, &entry->arguments[i], args[i]) < 0;
    }
    if (failed) {
        entry_release(entry);
        return NULL;
    }
    return entry;
}

/* Gives an entry its plan: (execute, handlers, constants, flags, trace, checks_deleted), where
 * `flags` has a byte for each argument: 1 if the program reads it, plus 2 if its layout
 * matters.  0, or -1 with an error. */
static int
entry_set_plan(Entry *entry, PyObject *plan)
{
    PyObject *execute, *handlers, *constants, *flags;
    if (!fj_expect_tuple(plan, "plan") ||
        !PyArg_ParseTuple(plan, "OO!O!Snp", &execute, &PyList_Type, &handlers, &PyTuple_Type,
                          &constants, &flags, &entry->trace, &entry->checks_deleted)) {
        return -1;
    }
    if (PyBytes_GET_SIZE(flags) != entry->num_arguments) {
        PyErr_SetString(PyExc_ValueError, "a plan has one flag for each argument");
        return -1;
    }
    entry->num_results = PyList_GET_SIZE(handlers);
    entry->results = PyMem_Calloc((size_t)entry->num_results, sizeof(void *));
    if (entry->results == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < entry->num_arguments; i++) {
        char flag = PyBytes_AS_STRING(flags)[i];
        entry->arguments[i].is_read = flag & 1;
        entry->num_read += flag & 1;
        if (!(flag & 2)) {
            Py_CLEAR(entry->arguments[i].layout);
        }
    }
    entry->handlers = Py_NewRef(handlers);
    entry->constants = Py_NewRef(constants);
    entry->execute = Py_NewRef(execute);
    return 0;
}

/* Makes an entry, which is stolen, the first. */
static void
insert_entry(FjDirect *self, Entry *entry)
{
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
}

/* (P) */
static void
remove_entry(FjDirect *self, Entry *entry)
{
    for (int i = 0; i < self->num_entries; i++) {
        if (self->entries[i] == entry) {
            self->num_entries--;
            memmove(self->entries + i, self->entries + i + 1,
                    (size_t)(self->num_entries - i) * sizeof(Entry *));
            entry_release(entry);
            return;
        }
    }
}

/* (P) Asks for the plan of an entry, which the caller holds.  1; 0 if there is none, and then
 * the entry is removed; or -1 with an error that is no Exception. */
static int
make_plan(FjDirect *self, Entry *entry, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *arrays = PyTuple_New(nargs);
    for (Py_ssize_t i = 0; arrays != NULL && i < nargs; i++) {
        PyTuple_SET_ITEM(arrays, i, Py_NewRef(args[i]));
    }
    PyObject *plan = arrays == NULL
                         ? NULL
                         : PyObject_CallFunctionObjArgs(self->context->parts[PLAN],
                                                        self->source, arrays, NULL);
    Py_XDECREF(arrays);
    if (entry->execute != NULL) { /* another thread was faster */
        Py_XDECREF(plan);
        PyErr_Clear();
        return 0;
    }
    int made = 0;
    if (plan != NULL && PyUnicode_Check(plan)) {
        Py_XSETREF(self->refusal, Py_NewRef(plan));
    }
    else if (plan == NULL || entry_set_plan(entry, plan) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            made = -1;
        }
        else {
            PyErr_Clear();
        }
    }
    else {
        made = 1;
    }
    Py_XDECREF(plan);
    if (made <= 0) {
        PyObject *exception = fj_compat_take_exception();
        remove_entry(self, entry);
        fj_compat_give_exception(exception);
    }
    return made;
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

/* (P) Finds the way of a call, with the entry that it agrees with, which the caller owns, if
 * there is one.  -1 with an error that is no Exception. */
static int
find_entry(FjDirect *self, PyObject *configuration, PyObject *const *args, Py_ssize_t nargs,
           Entry **found)
{
    FjDirectContext *context = self->context;
    int way = WAY_waiting;
    for (int i = 0; i < self->num_entries; i++) {
        Entry *entry = self->entries[i];
        entry->references++;
        way = matches(self, entry, configuration, args, nargs);
        if (way == WAY_direct) {
            if (i > 0 && i < self->num_entries && self->entries[i] == entry) {
                memmove(self->entries + 1, self->entries, (size_t)i * sizeof(Entry *));
                self->entries[0] = entry;
            }
            *found = entry;
            return way;
        }
        entry_release(entry);
        if (way < 0) {
            return way;
        }
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (Py_TYPE(args[i]) != (PyTypeObject *)context->parts[ARRAY_TYPE]) {
            return WAY_type;
        }
    }
    Py_ssize_t note_at = self->note_at < 0 ? context->after : self->note_at;
    if (self->unmatched++ < note_at) {
        return way;
    }
    /* Calls are noted ever more seldom: one that always differs costs little. */
    self->unmatched = 0;
    self->note_at = 4 * note_at + 4;
    Entry *entry = entry_new(context, configuration, args, nargs);
    if (entry == NULL) {
        PyErr_Clear(); /* of memory, or a deleted array: jax.jit will say so */
        return way;
    }
    entry->references++;
    insert_entry(self, entry);
    *found = entry;
    return way;
}

/* (P) Chooses the way of a call.  If it is WAY_direct, or jax.jit is to be observed, `*found`
 * is an entry, which the caller owns.  -1 with an error that is no Exception. */
static int
choose_way(FjDirect *self, PyObject *const *args, Py_ssize_t nargs, Entry **found)
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
    Py_ssize_t note_at = self->note_at < 0 ? context->after : self->note_at;
    if (self->num_entries == 0 && self->unmatched < note_at) {
        self->unmatched++;
        return WAY_waiting;
    }
    int profiled = fj_take_truth(PyObject_CallNoArgs(context->parts[IS_PROFILED]));
    if (profiled != 0) {
        PyErr_Clear();
        return WAY_profiler;
    }
    PyObject *configuration = PyObject_CallNoArgs(context->parts[CONFIGURATION]);
    int way = WAY_configuration;
    if (configuration != NULL && PyTuple_CheckExact(configuration)) {
        way = find_entry(self, configuration, args, nargs, found);
    }
    else {
        PyErr_Clear();
    }
    Py_XDECREF(configuration);
    if (FJ_UNLIKELY(way == WAY_direct && (*found)->execute == NULL)) {
        way = WAY_waiting;
        if ((*found)->has_run) {
            int planned = make_plan(self, *found, args, nargs);
            way = planned < 0 ? -1 : planned > 0 ? (int)WAY_direct : (int)WAY_waiting;
        }
    }
    if (way < 0 && *found != NULL) {
        PyObject *exception = fj_compat_take_exception();
        entry_release(*found);
        fj_compat_give_exception(exception);
    }
    return way;
}

/* ---- running an entry ---- */

/* (P) Runs the program of an entry: a new tuple of results, or NULL with an error.  `*began`
 * says whether the device has begun. */
static PyObject *
run(const FjDirectContext *context, const Entry *entry, PyObject *const *args, int *began)
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
    PyObject *arrays = PyObject_Vectorcall(context->parts[CONSUME], both, 2, NULL);
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

/* Passes a call on to jax.jit.  `entry`, which is stolen, is that of such calls, or NULL. */
static PyObject *
pass_on(FjDirect *self, Entry *entry, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *output = PyObject_Vectorcall(self->jitted, args, nargsf, kwnames);
    if (entry != NULL) {
        PyObject *exception = fj_compat_take_exception();
        /* An Output without a number has not passed through JAX (jax_disable_jit). */
        if (output != NULL && Py_TYPE(output) == fj_state_of(Py_TYPE(self))->output &&
            ((FjOutput *)output)->trace >= 0) {
            entry->has_run = 1;
        }
        entry_release(entry);
        fj_compat_give_exception(exception);
    }
    return output;
}

/* direct(*arrays) -> Output */
static PyObject *
direct_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FjDirect *self = (FjDirect *)op;
    FjDirectContext *context = self->context;
    Entry *entry = NULL;
    int way = kwnames != NULL ? (int)WAY_type
                              : choose_way(self, args, PyVectorcall_NARGS(nargsf), &entry);
    if (FJ_UNLIKELY(way != WAY_direct)) {
        if (way < 0) {
            return NULL;
        }
        self->counts[way]++;
        return pass_on(self, entry, args, nargsf, kwnames);
    }
    PyObject *output = NULL;
    int began;
    PyObject *results = run(context, entry, args, &began);
    if (FJ_LIKELY(results != NULL)) {
        if (remember_results(context, entry, results) == 0) {
            output = fj_output_new(fj_state_of(Py_TYPE(op)), results, entry->trace);
        }
        Py_DECREF(results);
    }
    if (FJ_UNLIKELY(output == NULL)) {
        if (!began && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();
            self->counts[WAY_failed]++;
            return pass_on(self, entry, args, nargsf, kwnames);
        }
        PyObject *exception = fj_compat_take_exception();
        entry_release(entry);
        fj_compat_give_exception(exception);
        return NULL;
    }
    entry_release(entry);
    self->counts[WAY_direct]++;
    if (++context->calls % CALLS_PER_COLLECTION == 0) {
        PyObject *none = PyObject_CallNoArgs(context->parts[COLLECT]);
        if (none == NULL) {
            PyErr_Clear();
        }
        Py_XDECREF(none);
    }
    return output;
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
        self->note_at = -1;
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
     "Why there was no plan the last time that one was wanted, or None."},
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
