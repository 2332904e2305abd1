/* The hooks of a call: methods of a FilterJit's `hooks`, a Python object, called by name.
 * `_base/_call_hooks.py` has their protocol: when each is called, with what, what it returns.
 *
 * If a hook raises, the call fails with its exception, except for translate_error: see there.
 * No exception is set while a hook runs.
 *
 * Any Python code can run in each function of this file.
 */
#include "call/call_hooks.h"

#include "call/bind.h"

/* Of a FilterJit that has its cache: the names of the hooks that are called again and again.
 */
static FjState *
state_of(const FjFilterJit *self)
{
    return self->cache->registry->state;
}

/* Calls hooks.hook(argument).  0, or -1 with the error that it raised. */
static int
call_hook(FjFilterJit *self, PyObject *hook, PyObject *argument)
{
    PyObject *answer = PyObject_CallMethodOneArg(self->hooks, hook, argument);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* Takes the exception that is set, for a hook that is only asked about an Exception, not about
 * KeyboardInterrupt and the like.  NULL for those, which stay set. */
static PyObject *
take_exception(void)
{
    PyObject *exception = fj_compat_take_exception();
    if (exception == NULL || PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_Exception)) {
        return exception;
    }
    fj_compat_give_exception(exception);
    return NULL;
}

/* hooks.prepare(self) -> (cache, arrays) */
int
fj_hooks_prepare_first(FjFilterJit *self)
{
    FjState *state = fj_state_of(Py_TYPE(self));
    PyObject *cache, *arrays;
    if (Py_EnterRecursiveCall(" in a jitted call")) {
        return -1;
    }
    PyObject *answer = PyObject_CallMethod(self->hooks, "prepare", "O", (PyObject *)self);
    Py_LeaveRecursiveCall();
    if (answer == NULL) {
        return -1;
    }
    if (!fj_expect_tuple(answer, "prepare") ||
        !PyArg_ParseTuple(answer, "O!O!;prepare() must return (cache, arrays)", state->cache,
                          &cache, &PyTuple_Type, &arrays)) {
        Py_DECREF(answer);
        return -1;
    }
    Py_ssize_t expected = ((FjCache *)cache)->function->open_leaves;
    if (PyTuple_GET_SIZE(arrays) != expected) {
        PyErr_Format(PyExc_ValueError,
                     "prepare() returned %zd arrays, but the cache's function has %zd",
                     PyTuple_GET_SIZE(arrays), expected);
        Py_DECREF(answer);
        return -1;
    }
    FJ_LOCK(self);
    if (self->cache == NULL) { /* another thread may have been faster */
        self->arrays = Py_NewRef(arrays);
        FJ_STORE_POINTER(self->cache, (FjCache *)Py_NewRef(cache));
        fj_cache_join(self->cache, &self->last);
    }
    FJ_UNLOCK();
    Py_DECREF(answer);
    return 0;
}

/* hooks.choose(self, name, argument) -> bytes */
PyObject *
fj_hooks_choose(void *context, Py_ssize_t parameter, PyObject *argument)
{
    FjFilterJit *self = (FjFilterJit *)context;
    PyObject *name = PyTuple_GET_ITEM(self->cache->signature->names, parameter);
    return PyObject_CallMethodObjArgs(self->hooks, state_of(self)->str_choose, self, name,
                                      argument, NULL);
}

/* hooks.raise_binding_error(self, args, kwargs) */
void
fj_hooks_raise_binding_error(FjFilterJit *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames)
{
    PyObject *result = fj_bind_call_method(self->hooks, "raise_binding_error",
                                           (PyObject *)self, NULL, args, nargs, kwnames);
    if (result != NULL) { /* the hook should have raised */
        PyErr_SetString(PyExc_TypeError, "the arguments do not fit the function's signature");
    }
    Py_XDECREF(result);
}

/* hooks.hand_over(self, reason, args, kwargs) -> result */
PyObject *
fj_hooks_hand_over(FjFilterJit *self, PyObject *reason, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames)
{
    return fj_bind_call_method(self->hooks, "hand_over", (PyObject *)self, reason, args, nargs,
                               kwnames);
}

/* hooks.compile(self, variant) -> callable */
PyObject *
fj_hooks_compile(FjFilterJit *self, FjVariant *variant)
{
    return PyObject_CallMethod(self->hooks, "compile", "OO", self, variant);
}

int
fj_hooks_before_raising_call(FjFilterJit *self, FjVariant *variant)
{
    return call_hook(self, state_of(self)->str_before_raising_call, (PyObject *)variant);
}

/* hooks.inspect_new_trace(variant, arrays, arrays of the output) -> bool, or None if it cannot
 * tell yet */
int
fj_hooks_inspect_new_trace(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                           FjOutput *output)
{
    PyObject *inputs = fj_leafbuf_as_tuple(arrays);
    PyObject *answer = inputs == NULL
                           ? NULL
                           : PyObject_CallMethod(self->hooks, "inspect_new_trace", "OOO",
                                                 variant, inputs, output->arrays);
    Py_XDECREF(inputs);
    if (answer == NULL) {
        return -1;
    }
    if (answer != Py_None) {
        fj_variant_set_may_raise(variant, output->trace,
                                 answer == Py_True ? FJ_MAY_RAISE_YES : FJ_MAY_RAISE_NO);
    }
    Py_DECREF(answer);
    return 0;
}

/* hooks.run_deferred(variant, first, again), once more if it raises.  The second Exception is
 * unraisable; an interrupt takes the place of the exception that is set. */
PyObject *
fj_hooks_run_deferred(FjFilterJit *self, FjVariant *variant, Py_ssize_t first,
                      PyObject *result)
{
    PyObject *exception = fj_compat_take_exception(), *answer = NULL;
    for (int again = 0; again < 2 && answer == NULL; again++) {
        answer = PyObject_CallMethod(self->hooks, "run_deferred", "OnO", (PyObject *)variant,
                                     first, again ? Py_True : Py_False);
        if (answer == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
            Py_XSETREF(exception, fj_compat_take_exception());
            Py_CLEAR(result);
        }
        else if (answer == NULL && again) {
            PyErr_WriteUnraisable((PyObject *)variant);
        }
        PyErr_Clear();
    }
    Py_XDECREF(answer);
    fj_compat_give_exception(exception);
    return result;
}

int
fj_hooks_wait(FjFilterJit *self, FjOutput *output)
{
    return call_hook(self, state_of(self)->str_wait, output->arrays);
}

/* hooks.call_again(variant, exception, arrays) -> bool */
int
fj_hooks_call_again(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays)
{
    PyObject *exception = take_exception();
    if (exception == NULL) {
        return 0;
    }
    PyObject *inputs = fj_leafbuf_as_tuple(arrays);
    int again = inputs == NULL
                    ? -1
                    : fj_take_truth(PyObject_CallMethod(self->hooks, "call_again", "OOO",
                                                        variant, exception, inputs));
    Py_XDECREF(inputs);
    if (again == 0) {
        fj_compat_give_exception(exception);
        return 0;
    }
    Py_DECREF(exception);
    return again > 0;
}

/* hooks.translate_error(self, exception, variant or None, arrays) -> exception, or a str: why
 * the call is handed over.  If the hook raises an Exception itself, or returns something else,
 * the original exception stays; if it is interrupted, the interrupt replaces the original. */
void
fj_hooks_translate_error(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                         PyObject **reason)
{
    PyObject *exception = take_exception();
    if (exception == NULL) {
        return;
    }
    PyObject *inputs = fj_leafbuf_as_tuple(arrays);
    PyObject *translated =
        inputs == NULL
            ? NULL
            : PyObject_CallMethod(self->hooks, "translate_error", "OOOO", self, exception,
                                  variant == NULL ? Py_None : (PyObject *)variant, inputs);
    Py_XDECREF(inputs);
    if (translated == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        Py_DECREF(exception);
        return;
    }
    if (reason != NULL && translated != NULL && PyUnicode_Check(translated)) {
        *reason = translated;
        Py_DECREF(exception);
        return;
    }
    if (translated == NULL || !PyExceptionInstance_Check(translated)) {
        PyErr_Clear();
        Py_XDECREF(translated);
        fj_compat_give_exception(exception);
        return;
    }
    Py_DECREF(exception);
    fj_compat_give_exception(translated);
}
