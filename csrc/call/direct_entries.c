/* Learns the entries of a Direct, and finds the entry that a call matches.
 *
 * After the first calls, each call is compared with the entries.  One that matches none is
 * recorded: a new entry records the facts about it (direct_entry.c), and replaces the least
 * recently used of four.  If jax.jit makes that call, the next call that matches the entry
 * asks Python for a plan, and runs it.  After 16 calls in vain, calls rest, longer and
 * longer: they are passed on without comparing them.  Four direct calls make up for one.
 *
 * If a Direct has no source to ask, for example because its programs were loaded, Python adds
 * its entries, and calls don't rest.  There can be many.  One argument tells most of them
 * apart, and is compared first.
 *
 * Python code can run in making a plan, in direct_entry.c, when JAX returns its configuration,
 * and when references are dropped.  The caller holds the arguments. */
#include "call/direct_entries.h"

#define MAX_REST 256
#define SOME 4 /* checking this many arrays takes as long as checking the configuration */

void
fj_direct_entries_init(FjDirectEntries *self, const FjDirectContext *context, int learns)
{
    *self = (FjDirectEntries){.epoch = FJ_LOAD_COUNT(context->epoch),
                              .rest = -1,
                              .route = FJ_ROUTE_waiting,
                              .learns = learns};
}

void
fj_direct_entries_drop(FjDirectEntries *self)
{
    while (self->count > 0) {
        fj_direct_entry_release(self->items[--self->count]);
    }
    PyMem_Free(self->items);
    self->items = NULL;
    self->rest = -1;
    self->in_vain = 0;
    self->route = FJ_ROUTE_waiting;
}

int
fj_direct_entries_traverse(FjDirectEntries *self, visitproc visit, void *arg)
{
    Py_VISIT(self->why_no_plan);
    for (int i = 0; i < self->count; i++) {
        int result = fj_direct_entry_traverse(self->items[i], visit, arg);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

/* ---- entries and plans ---- */

/* (P) Keeps the current exception. */
static void
remove_entry(FjDirectEntries *self, FjDirectEntry *entry)
{
    for (int i = 0; i < self->count; i++) {
        if (self->items[i] == entry) {
            self->count--;
            memmove(self->items + i, self->items + i + 1,
                    (size_t)(self->count - i) * sizeof(FjDirectEntry *));
            fj_direct_entry_release(entry);
            return;
        }
    }
}

/* (P) Inserts an entry (stolen) at the front.  Learned entries replace the least recently used
 * one.  0, or -1 with MemoryError. */
static int
insert_entry(FjDirectEntries *self, FjDirectEntry *entry)
{
    FjDirectEntry **items =
        PyMem_Realloc(self->items, (size_t)(self->count + 1) * sizeof(FjDirectEntry *));
    if (items == NULL) {
        fj_direct_entry_release(entry);
        return fj_raise_no_memory();
    }
    self->items = items;
    FjDirectEntry *oldest = NULL;
    if (self->learns && self->count == FJ_DIRECT_ENTRIES) {
        oldest = self->items[self->count - 1];
        oldest->references++;
        remove_entry(self, oldest); /* runs no code: we hold a second reference */
    }
    memmove(self->items + 1, self->items, (size_t)self->count * sizeof(FjDirectEntry *));
    self->items[0] = entry;
    self->count++;
    if (oldest != NULL) {
        fj_direct_entry_release(oldest);
    }
    return 0;
}

/* Chooses the argument that differs from the new entry's in most other entries. */
static void
choose_telling(FjDirectEntries *self, const FjDirectEntry *added)
{
    int most = 0;
    for (Py_ssize_t i = 0; i < added->num_arguments; i++) {
        int differ = 0;
        for (int j = 0; j < self->count; j++) {
            const FjDirectEntry *entry = self->items[j];
            differ += i < entry->num_arguments &&
                      entry->arguments[i].aval != added->arguments[i].aval;
        }
        if (differ > most) {
            most = differ;
            self->telling = i;
        }
    }
}

int
fj_direct_entries_add(FjDirectEntries *self, FjDirectContext *context, PyObject *plan,
                      PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *configuration = PyObject_CallNoArgs(context->jax[FJ_CONFIGURATION]);
    FjDirectEntry *entry = NULL;
    if (configuration != NULL && fj_expect_tuple(configuration, "a configuration")) {
        entry = fj_direct_entry_new(context, configuration, args, nargs);
    }
    Py_XDECREF(configuration);
    if (entry == NULL) {
        return -1;
    }
    if (fj_direct_entry_set_plan(entry, plan) < 0) {
        fj_direct_entry_release(entry);
        return -1;
    }
    choose_telling(self, entry);
    return insert_entry(self, entry);
}

/* Counts a call that was compared in vain, for this reason. */
static void
rest_after(FjDirectEntries *self, int route)
{
    int more = self->in_vain / FJ_PAID + 1 - FJ_IN_VAIN;
    self->rest = more <= 0 ? 0 : more < 7 ? (Py_ssize_t)4 << more : MAX_REST;
    self->in_vain += more < 7 ? FJ_PAID : 0;
    self->route = route;
}

/* (P) Asks for the plan of an entry that the caller holds.  Returns the route of the call:
 * without a plan, FJ_ROUTE_waiting, and the entry is removed.  -1 with an error that isn't an
 * Exception. */
static int
make_plan(FjDirectEntries *self, const FjDirectContext *context, PyObject *source,
          FjDirectEntry *entry, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *arrays = fj_tuple_from(args, nargs);
    PyObject *plan = arrays == NULL ? NULL
                                    : PyObject_CallFunctionObjArgs(context->jax[FJ_PLAN],
                                                                   source, arrays, NULL);
    Py_XDECREF(arrays);
    if (plan != NULL && entry->execute == NULL) { /* otherwise a different call was faster */
        if (PyUnicode_Check(plan)) {
            Py_XSETREF(self->why_no_plan, Py_NewRef(plan));
        }
        else {
            (void)fj_direct_entry_set_plan(entry, plan); /* below, no plan is as an error */
        }
    }
    int route = fj_direct_differs(entry->execute != NULL ? FJ_ROUTE_direct : FJ_ROUTE_waiting);
    Py_XDECREF(plan);
    if (entry->execute == NULL) {
        remove_entry(self, entry);
        rest_after(self, FJ_ROUTE_waiting);
    }
    return route;
}

/* ---- choosing the route of a call ---- */

static int
takes_all(const FjDirectContext *context, PyObject *const *args, Py_ssize_t nargs)
{
    int all = 1;
    for (Py_ssize_t i = 0; i < nargs && all; i++) {
        all = fj_direct_takes(context, args[i]);
    }
    return all;
}

/* (P) Returns the aval of the telling argument, or the shape of a NumPy array (new reference);
 * NULL if no added entry can be ruled out by it, or with an error. */
static PyObject *
telling_fact(const FjDirectEntries *self, const FjDirectContext *context,
             PyObject *const *args, Py_ssize_t nargs)
{
    if (self->learns || self->count < 2 || self->telling >= nargs) {
        return NULL;
    }
    PyObject *value = args[self->telling], *type = (PyObject *)Py_TYPE(value);
    PyObject *fact =
        type == context->jax[FJ_ARRAY_TYPE]   ? fj_direct_ask(context, FJ_GET_AVAL, value)
        : type == context->jax[FJ_HOST_ARRAY] ? PyObject_GetAttrString(value, "shape")
                                              : NULL;
    return fact;
}

/* (P) True if an entry can match a call with this fact. */
static int
may_match(const FjDirectEntries *self, const FjDirectEntry *entry, PyObject *fact)
{
    if (fact == NULL || self->telling >= entry->num_arguments) {
        return 1;
    }
    const FjDirectArgument *argument = &entry->arguments[self->telling];
    if (!PyTuple_CheckExact(fact)) {
        return argument->aval == fact && argument->host == NULL;
    }
    return argument->shape != NULL && fj_direct_equal(argument->shape, fact) != 0;
}

/* (P) fj_direct_entries_choose, after the checks that need no entry. */
static int
find_entry(FjDirectEntries *self, FjDirectContext *context, PyObject *configuration,
           PyObject *const *args, Py_ssize_t nargs, FjDirectEntry **found)
{
    int route = FJ_ROUTE_waiting;
    FjDirectEffort effort = {0, 0}; /* of all comparisons */
    PyObject *fact = telling_fact(self, context, args, nargs);
    if (fact == NULL && PyErr_Occurred() && fj_direct_differs(route) < 0) {
        return -1;
    }
    for (int i = 0; i < self->count; i++) {
        FjDirectEntry *entry = self->items[i];
        if (!may_match(self, entry, fact)) {
            route = FJ_ROUTE_aval;
            continue;
        }
        entry->references++;
        route = fj_direct_entry_matches(entry, context, configuration, args, nargs, &effort);
        if (route == FJ_ROUTE_direct) {
            if (effort.compared > SOME && effort.compared > nargs / SOME && self->learns) {
                rest_after(self, FJ_ROUTE_sharding); /* jax.jit is as fast */
            }
            else if (entry->execute != NULL && self->in_vain > 0) {
                self->in_vain--;
            }
            if (i > 0 && i < self->count && self->items[i] == entry) {
                memmove(self->items + 1, self->items, (size_t)i * sizeof(FjDirectEntry *));
                self->items[0] = entry;
            }
            *found = entry;
            break;
        }
        fj_direct_entry_release(entry);
        if (route < 0) {
            break;
        }
    }
    Py_XDECREF(fact);
    if (route < 0 || *found != NULL || !self->learns) {
        return route;
    }
    route = takes_all(context, args, nargs) ? route : FJ_ROUTE_type;
    rest_after(self, route);
    if (route == FJ_ROUTE_type) {
        return route;
    }
    FjDirectEntry *entry = fj_direct_entry_new(context, configuration, args, nargs);
    if (entry == NULL) {
        return fj_direct_differs(route); /* a deleted array or no memory: jax.jit will raise */
    }
    entry->references++;
    if (insert_entry(self, entry) < 0) {
        fj_direct_entry_release(entry);
        return fj_direct_differs(route);
    }
    *found = entry;
    return route;
}

int
fj_direct_entries_choose(FjDirectEntries *self, FjDirectContext *context, PyObject *source,
                         PyObject *const *args, Py_ssize_t nargs, FjDirectEntry **found)
{
    if (!FJ_LOAD_INT(context->enabled)) {
        return FJ_ROUTE_off;
    }
    unsigned long long epoch = FJ_LOAD_COUNT(context->epoch);
    if (self->epoch != epoch) {
        self->epoch = epoch;
        fj_direct_entries_drop(self);
    }
    if (self->rest < 0) {
        self->rest = context->after;
    }
    if (self->learns ? self->rest > 0 : self->count == 0) {
        self->rest--;
        return self->route;
    }
    if (self->count == 0 && !takes_all(context, args, nargs)) {
        return FJ_ROUTE_type; /* for example Python numbers that are traced */
    }
    int profiled = fj_steal_truth(PyObject_CallNoArgs(context->jax[FJ_IS_PROFILED]));
    if (FJ_UNLIKELY(profiled != 0)) {
        return fj_direct_differs(FJ_ROUTE_profiler);
    }
    PyObject *configuration = PyObject_CallNoArgs(context->jax[FJ_CONFIGURATION]);
    int route;
    if (configuration != NULL && PyTuple_CheckExact(configuration)) {
        route = find_entry(self, context, configuration, args, nargs, found);
    }
    else {
        route = fj_direct_differs(FJ_ROUTE_configuration);
    }
    Py_XDECREF(configuration);
    if (FJ_UNLIKELY(route == FJ_ROUTE_direct && (*found)->execute == NULL)) {
        route = (*found)->has_run ? make_plan(self, context, source, *found, args, nargs)
                                  : FJ_ROUTE_waiting;
    }
    if (route < 0 && *found != NULL) {
        fj_direct_entry_release(*found);
    }
    return route;
}
