/* Entries of a Direct: the facts about some calls, and an executable for them.
 *
 * A match compares the same facts as jax.jit's own key: the configuration, and for each
 * argument, read by the program or not, the facts in direct_argument.c.  Each call copies host
 * values to the device.  Later writes to them have no effect.
 *
 * An executable doesn't check its arguments: given an array with a different dtype or layout
 * but the same size, it computes nonsense.  So only a *known* array is used unchecked: the
 * very object checked in an earlier call, or the very object that this entry's executable
 * returned at an index whose results have passed the check.  A weak reference identifies it,
 * keeps nothing alive, and never matches a new object at the same address.  The checked facts
 * don't change while an array lives.  (The executable notices deleted arrays.)
 *
 * Python code can run when shardings and layouts are compared, when the program runs (it
 * releases the GIL), when weak references are created on Python 3.11 (the garbage collector),
 * and in finalizers.  The caller holds the arguments and the entry. */
#include "call/direct_entry.h"

#define LEARNING_CALLS 8

/* Applies WHAT to each reference of an entry.  Some can be NULL. */
#define ENTRY_FIELDS(WHAT, entry)                                                             \
    WHAT((entry)->configuration);                                                             \
    WHAT((entry)->execute);                                                                   \
    WHAT((entry)->handlers);                                                                  \
    WHAT((entry)->constants);                                                                 \
    WHAT((entry)->settings);                                                                  \
    for (Py_ssize_t i_ = 0; (entry)->arguments != NULL && i_ < (entry)->num_arguments;        \
         i_++) {                                                                              \
        FjDirectArgument *argument_ = &(entry)->arguments[i_];                                \
        WHAT(argument_->impl);                                                                \
        WHAT(argument_->aval);                                                                \
        WHAT(argument_->sharding);                                                            \
        WHAT(argument_->equal);                                                               \
        WHAT(argument_->committed);                                                           \
        WHAT(argument_->layout);                                                              \
        WHAT(argument_->host);                                                                \
        WHAT(argument_->dtype);                                                               \
        WHAT(argument_->shape);                                                               \
        WHAT(argument_->devices);                                                             \
        WHAT(argument_->known);                                                               \
    }

int
fj_direct_entry_traverse(FjDirectEntry *entry, visitproc visit, void *arg)
{
    ENTRY_FIELDS(Py_VISIT, entry)
    return 0;
}

void
fj_direct_entry_release(FjDirectEntry *entry)
{
    if (--entry->references > 0) {
        return;
    }
    PyObject *exception = fj_compat_get_raised();
    ENTRY_FIELDS(Py_CLEAR, entry)
    PyMem_Free(entry->arguments);
    PyMem_Free(entry->results);
    PyMem_Free(entry);
    fj_compat_set_raised(exception);
}

/* ---- making an entry ---- */

FjDirectEntry *
fj_direct_entry_new(const FjDirectContext *context, PyObject *configuration,
                    PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *settings = context->jax[FJ_SETTINGS];
    Py_ssize_t num_settings = PyTuple_GET_SIZE(settings);
    FjDirectEntry *entry = PyMem_Calloc(1, sizeof(FjDirectEntry));
    if (entry == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    entry->references = 1;
    entry->configuration = Py_NewRef(configuration);
    entry->learning_calls = LEARNING_CALLS;
    entry->num_arguments = nargs;
    entry->arguments = PyMem_Calloc((size_t)nargs, sizeof(FjDirectArgument));
    PyObject *values = entry->arguments == NULL ? PyErr_NoMemory() : PyList_New(0);
    int failed = values == NULL;
    for (Py_ssize_t i = 0; !failed && i < num_settings; i++) {
        failed = fj_list_steal(values, fj_direct_ask(context, FJ_GET_SETTING,
                                                     PyTuple_GET_ITEM(settings, i))) < 0;
    }
    entry->settings = failed ? NULL : PyList_AsTuple(values);
    failed = entry->settings == NULL;
    Py_XDECREF(values);
    for (Py_ssize_t i = 0; !failed && i < nargs; i++) {
        failed = fj_direct_argument_describe(&entry->arguments[i], context, args[i]) < 0;
    }
    if (failed) {
        fj_direct_entry_release(entry);
        return NULL;
    }
    return entry;
}

/* Records where to put the values in host memory. */
static int
set_puts(FjDirectEntry *entry, const char *flags, PyObject *puts)
{
    Py_ssize_t used = 0;
    for (Py_ssize_t i = 0; i < entry->num_arguments; i++) {
        FjDirectArgument *argument = &entry->arguments[i];
        PyObject *aval, *sharding, *devices;
        if (argument->host == NULL || !(flags[i] & 1)) {
            continue;
        }
        if (used == PyTuple_GET_SIZE(puts)) {
            return fj_raise(PyExc_ValueError, "a plan puts each value of the host");
        }
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(puts, used++), "OOO!", &aval, &sharding,
                              &PyList_Type, &devices)) {
            return -1;
        }
        Py_XSETREF(argument->aval, Py_NewRef(aval));
        Py_XSETREF(argument->sharding, Py_NewRef(sharding));
        Py_XSETREF(argument->devices, Py_NewRef(devices));
    }
    return 0;
}

int
fj_direct_entry_set_plan(FjDirectEntry *entry, PyObject *plan)
{
    /* `trace` and `checks_deleted` come first, because Python code can run in their
     * conversion. */
    static char *names[] = {"trace",     "checks_deleted", "execute", "handlers",
                            "constants", "flags",          "puts",    NULL};
    PyObject *execute, *handlers, *constants, *flags, *puts;
    Py_ssize_t trace, num_read = 0, num_other = 0;
    int checks_deleted;
    if (!PyDict_CheckExact(plan)) {
        PyErr_Format(PyExc_TypeError, "a plan is a dict, not a %.100s",
                     Py_TYPE(plan)->tp_name);
        return -1;
    }
    PyObject *none = PyTuple_New(0);
    int parsed = none == NULL
                     ? 0
                     : PyArg_ParseTupleAndKeywords(none, plan, "npOO!O!SO!:plan", names,
                                                   &trace, &checks_deleted, &execute,
                                                   &PyList_Type, &handlers, &PyTuple_Type,
                                                   &constants, &flags, &PyTuple_Type, &puts);
    Py_XDECREF(none);
    if (!parsed) {
        return -1;
    }
    if (entry->execute != NULL) { /* code run by the parser made a plan */
        return 0;
    }
    if (PyBytes_GET_SIZE(flags) != entry->num_arguments) {
        return fj_raise(PyExc_ValueError, "a plan has one flag for each argument");
    }
    if (!entry->has_run) { /* it was added */
        entry->trace = trace;
    }
    if (trace != entry->trace) {
        return fj_raise(PyExc_ValueError, "a plan is that of the recorded call");
    }
    if (set_puts(entry, PyBytes_AS_STRING(flags), puts) < 0) {
        return -1;
    }
    Py_ssize_t num_results = PyList_GET_SIZE(handlers);
    entry->results = PyMem_Calloc((size_t)num_results, sizeof(void *));
    if (entry->results == NULL) {
        return fj_raise_no_memory();
    }
    for (Py_ssize_t i = 0; i < entry->num_arguments; i++) {
        entry->arguments[i].is_read = PyBytes_AS_STRING(flags)[i] & 1;
        num_read += entry->arguments[i].is_read;
        num_other +=
            entry->arguments[i].is_read && !fj_direct_argument_is_array(&entry->arguments[i]);
    }
    entry->num_results = num_results;
    entry->num_read = num_read;
    entry->num_other = num_other;
    entry->checks_deleted = checks_deleted;
    entry->handlers = Py_NewRef(handlers);
    entry->constants = Py_NewRef(constants);
    entry->execute = Py_NewRef(execute);
    /* The plan is complete.  Only then drop layouts, which can run Python code. */
    for (Py_ssize_t i = 0; i < entry->num_arguments; i++) {
        if (!(PyBytes_AS_STRING(flags)[i] & 2)) {
            Py_CLEAR(entry->arguments[i].layout);
        }
    }
    return 0;
}

/* ---- matching a call with an entry ---- */

/* No-op without memory for the reference. */
static void
make_known(FjDirectArgument *argument, PyObject *array)
{
    PyObject *reference = PyWeakref_NewRef(array, NULL);
    if (reference == NULL) {
        PyErr_Clear();
    }
    Py_XSETREF(argument->known, reference);
}

static void
forget_result(FjDirectEntry *entry, FjDirectArgument *argument)
{
    FJ_STORE_SIZE(entry->num_results_passed,
                  entry->num_results_passed - (argument->result >= 0));
    argument->result = -1;
    argument->result_is_checked = 0;
}

/* After checking an array: makes it known if it was also the last one checked.  Otherwise, if
 * it has the address of a result of the previous call, records that. */
static void
learn(FjDirectEntry *entry, FjDirectArgument *argument, PyObject *array, Py_ssize_t *cursor)
{
    forget_result(entry, argument); /* not this time */
    if (argument->last == array) {
        make_known(argument, array);
        return;
    }
    argument->last = array;
    for (Py_ssize_t i = 0; entry->learning_calls > 0 && i < entry->num_results; i++) {
        Py_ssize_t j = (*cursor + i) % entry->num_results;
        if (entry->results[j] == array) {
            argument->result = j;
            FJ_STORE_SIZE(entry->num_results_passed, entry->num_results_passed + 1);
            *cursor = j + 1;
            return;
        }
    }
}

/* (P) Compares JAX's configuration with the entry's, first by identity, then by equality: each
 * step can enter a new but equal context.  1, 0, or -1 with an error. */
static int
same_configuration(FjDirectEntry *entry, PyObject *now)
{
    PyObject *was = entry->configuration;
    Py_ssize_t size = PyTuple_GET_SIZE(now);
    if (PyTuple_GET_SIZE(was) != size) {
        return 0;
    }
    if (FJ_LIKELY(memcmp(((PyTupleObject *)now)->ob_item, ((PyTupleObject *)was)->ob_item,
                         (size_t)size * sizeof(PyObject *)) == 0)) {
        return 1;
    }
    int same = 1;
    Py_INCREF(was);
    for (Py_ssize_t i = 0; same > 0 && i < size; i++) {
        same = fj_direct_equal(PyTuple_GET_ITEM(was, i), PyTuple_GET_ITEM(now, i));
    }
    Py_DECREF(was);
    if (same > 0) {
        Py_SETREF(entry->configuration, Py_NewRef(now));
    }
    return same;
}

int
fj_direct_entry_matches(FjDirectEntry *entry, const FjDirectContext *context,
                        PyObject *configuration, PyObject *const *args, Py_ssize_t nargs,
                        FjDirectEffort *effort)
{
    int same = same_configuration(entry, configuration);
    if (same <= 0) {
        return same < 0 ? -1 : FJ_ROUTE_configuration;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entry->settings); i++) {
        PyObject *value = fj_direct_ask(context, FJ_GET_SETTING,
                                        PyTuple_GET_ITEM(context->jax[FJ_SETTINGS], i));
        Py_XDECREF(value);
        if (value != PyTuple_GET_ITEM(entry->settings, i)) {
            return fj_direct_differs(FJ_ROUTE_configuration);
        }
    }
    if (nargs != entry->num_arguments) {
        return FJ_ROUTE_aval;
    }
    Py_ssize_t cursor = 0, before = effort->checked;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        FjDirectArgument *argument = &entry->arguments[i];
        if (fj_compat_weakref_is(argument->known, args[i])) {
            continue;
        }
        int route = fj_direct_argument_check(argument, context, args[i], &effort->compared);
        if (route != FJ_ROUTE_direct) {
            return route;
        }
        if (argument->host == NULL) {
            effort->checked++;
            learn(entry, argument, args[i], &cursor);
        }
    }
    if (effort->checked > before && entry->learning_calls > 0) {
        FJ_STORE_INT(entry->learning_calls, entry->learning_calls - 1);
    }
    for (Py_ssize_t i = 0; entry->checks_deleted && i < nargs; i++) {
        if (entry->arguments[i].host != NULL) {
            continue;
        }
        PyObject *array = fj_direct_array_of(context, args[i]);
        int deleted =
            array == NULL ? -1 : fj_steal_truth(fj_direct_ask(context, FJ_IS_DELETED, array));
        Py_XDECREF(array);
        if (deleted != 0) {
            return fj_direct_differs(FJ_ROUTE_deleted);
        }
    }
    return FJ_ROUTE_direct;
}

/* ---- running an entry ---- */

int
fj_direct_entry_remember(FjDirectEntry *entry, const FjDirectContext *context,
                         PyObject *results)
{
    Py_ssize_t count = PyTuple_GET_SIZE(results), compared = 0;
    for (Py_ssize_t j = 0; j < count && j < entry->num_results; j++) {
        entry->results[j] = PyTuple_GET_ITEM(results, j);
    }
    for (Py_ssize_t i = 0; entry->num_results_passed > 0 && i < entry->num_arguments; i++) {
        FjDirectArgument *argument = &entry->arguments[i];
        Py_ssize_t j = argument->result;
        if (j < 0 || j >= count) {
            continue;
        }
        PyObject *result = PyTuple_GET_ITEM(results, j);
        if (!argument->result_is_checked) { /* a different array could have had its address */
            int route = fj_direct_argument_check(argument, context, result, &compared);
            if (route < 0) {
                return -1;
            }
            if (argument->result != j || route != FJ_ROUTE_direct) {
                forget_result(entry, argument);
                continue;
            }
            argument->result_is_checked = 1;
        }
        make_known(argument, result);
    }
    return 0;
}

/* (P) Returns a copy of a host value on the device. */
static PyObject *
put(const FjDirectContext *context, const FjDirectArgument *argument, PyObject *value)
{
    PyObject *values = PyList_New(1), *array = NULL;
    if (values != NULL) {
        PyList_SET_ITEM(values, 0, Py_NewRef(value));
        PyObject *arguments[] = {argument->aval,    argument->sharding, values,
                                 argument->devices, Py_False,           Py_True};
        array = PyObject_Vectorcall(context->jax[FJ_PUT], arguments, 6, NULL);
        Py_DECREF(values);
    }
    return array;
}

/* (P) Replaces random keys by their arrays, and host values by device arrays. */
static int
replace_others(const FjDirectEntry *entry, const FjDirectContext *context,
               PyObject *const *args, PyObject *inputs)
{
    Py_ssize_t at = PyTuple_GET_SIZE(entry->constants);
    for (Py_ssize_t i = 0; i < entry->num_arguments; i++) {
        const FjDirectArgument *argument = &entry->arguments[i];
        if (argument->is_read && !fj_direct_argument_is_array(argument)) {
            PyObject *array = argument->host != NULL
                                  ? put(context, argument, args[i])
                                  : fj_direct_ask(context, FJ_GET_DATA, args[i]);
            if (array == NULL) {
                return -1;
            }
            PyObject *before = PyTuple_GET_ITEM(inputs, at);
            PyTuple_SET_ITEM(inputs, at, array);
            Py_DECREF(before); /* the caller holds it */
        }
        at += argument->is_read;
    }
    return 0;
}

PyObject *
fj_direct_entry_run(const FjDirectEntry *entry, const FjDirectContext *context,
                    PyObject *const *args, int *began, unsigned long long *ran)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entry->constants);
    PyObject *inputs = PyTuple_New(count + entry->num_read);
    *began = 0;
    *ran = 0;
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
    if (entry->num_other > 0 && replace_others(entry, context, args, inputs) < 0) {
        Py_DECREF(inputs);
        return NULL;
    }
    int timed = FJ_UNLIKELY(FJ_LOAD_INT(context->timed));
    unsigned long long before = timed ? fj_compat_now() : 0;
    PyObject *results = fj_call_nested(entry->execute, &inputs, 1, NULL);
    if (timed) {
        *ran = fj_compat_now() - before;
    }
    Py_DECREF(inputs);
    if (results == NULL) {
        return NULL;
    }
    *began = 1;
    PyObject *both[] = {results, entry->handlers};
    PyObject *arrays = PyObject_Vectorcall(context->jax[FJ_MAKE_ARRAYS], both, 2, NULL);
    Py_DECREF(results);
    PyObject *tuple = arrays == NULL ? NULL : fj_tuple_of(arrays);
    Py_XDECREF(arrays);
    return tuple;
}
