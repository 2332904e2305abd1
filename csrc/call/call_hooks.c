/* Calls the hooks: methods of a FilterJit's Python object `hooks`, by name.
 * `_base/_call_hooks.py` has their protocol: when each is called, with what, and its result.
 *
 * If a hook raises, the call fails with its exception (`failed` is different, see there).  No
 * exception is set while a hook runs.
 *
 * Each function can run any Python code. */
#include "call/call_hooks.h"

#include "call/bind.h"

/* The FilterJit must have a cache. */
static FjState *
state_of(const FjFilterJit *self)
{
    return self->cache->registry->state;
}

/* Takes the current Exception.  NULL for others (KeyboardInterrupt), which stay set. */
static PyObject *
take_exception(void)
{
    PyObject *exception = fj_compat_get_raised();
    if (exception == NULL || PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_Exception)) {
        return exception;
    }
    fj_compat_set_raised(exception);
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
    if (self->cache == NULL) { /* another thread can be faster */
        self->arrays = Py_NewRef(arrays);
        FJ_STORE_POINTER(self->cache, (FjCache *)Py_NewRef(cache));
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

/* hooks.compile(self, variant) -> callable */
PyObject *
fj_hooks_compile(FjFilterJit *self, FjVariant *variant)
{
    return PyObject_CallMethod(self->hooks, "compile", "OO", self, variant);
}

/* hooks.run(self, variant, arrays, exception or None) -> Output, or None */
PyObject *
fj_hooks_run(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays)
{
    FjState *state = state_of(self);
    PyObject *exception = fj_compat_get_raised();
    if (FJ_LOAD_POINTER(variant->call) == NULL) {
        Py_XDECREF(exception);
        return fj_variant_is_freed();
    }
    PyObject *inputs = fj_leafbuf_as_tuple(arrays);
    PyObject *result =
        inputs == NULL
            ? NULL
            : PyObject_CallMethodObjArgs(self->hooks, state->str_run, self, variant, inputs,
                                         exception == NULL ? Py_None : exception, NULL);
    Py_XDECREF(inputs);
    if (result == Py_None && exception != NULL) {
        Py_CLEAR(result);
        fj_compat_set_raised(exception);
        return NULL;
    }
    Py_XDECREF(exception);
    return result;
}

/* hooks.finish(variant, arrays, output or None).  If it raises, for example on an interrupt,
 * calls it once more without an Output. */
int
fj_hooks_finish(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                FjOutput *output)
{
    PyObject *exception = fj_compat_get_raised(), *answer = NULL;
    PyObject *inputs = fj_leafbuf_as_tuple(arrays);
    PyObject *error = inputs == NULL ? fj_compat_get_raised() : NULL;
    for (int again = 0; inputs != NULL && again < 2 && answer == NULL; again++) {
        PyObject *given = output == NULL || again ? Py_None : (PyObject *)output;
        answer = PyObject_CallMethod(self->hooks, "finish", "OOO", variant, inputs, given);
        if (answer == NULL && error == NULL) {
            error = fj_compat_get_raised();
        }
        PyErr_Clear();
    }
    Py_XDECREF(answer);
    Py_XDECREF(inputs);
    if (error != NULL && exception != NULL &&
        PyObject_TypeCheck(error, (PyTypeObject *)PyExc_Exception)) {
        Py_CLEAR(error);
    }
    if (error != NULL) {
        Py_XSETREF(exception, error);
    }
    int result = error == NULL ? 0 : -1;
    fj_compat_set_raised(exception);
    return result;
}

/* hooks.failed(self, exception or None, variant or None, arrays, (args, kwargs) or None,
 * is_call) -> exception, or a callable that makes the call.  If the hook raises an Exception
 * or returns anything else, the original exception stays.  An interrupt of the hook replaces
 * it. */
PyObject *
fj_hooks_failed(FjFilterJit *self, FjVariant *variant, const FjLeafBuf *arrays,
                PyObject *given, int is_call)
{
    PyObject *exception = take_exception();
    if (exception == NULL && (given == NULL || PyErr_Occurred())) {
        return NULL;
    }
    PyObject *inputs = fj_leafbuf_as_tuple(arrays);
    PyObject *answer =
        inputs == NULL ? NULL
                       : PyObject_CallMethod(self->hooks, "failed", "OOOOOO", self,
                                             exception == NULL ? Py_None : exception,
                                             variant == NULL ? Py_None : (PyObject *)variant,
                                             inputs, given == NULL ? Py_None : given,
                                             is_call ? Py_True : Py_False);
    Py_XDECREF(inputs);
    if (answer == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        Py_XDECREF(exception);
        return NULL;
    }
    if (answer != NULL && PyExceptionInstance_Check(answer)) {
        Py_XSETREF(exception, Py_NewRef(answer));
    }
    else if (answer != NULL && is_call && PyCallable_Check(answer)) {
        Py_XDECREF(exception);
        return answer;
    }
    PyErr_Clear();
    Py_XDECREF(answer);
    fj_compat_set_raised(exception);
    if (exception == NULL) {
        PyErr_SetString(PyExc_TypeError, "the arguments do not fit the function's signature");
    }
    return NULL;
}
