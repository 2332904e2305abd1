/* Records and checks one argument of direct calls.
 *
 * A match compares the same facts as jax.jit's own key: type, aval, sharding, committed flag
 * and layout; for typed random keys, the facts about their array, and their implementation.
 * Avals are interned and compared by identity.  Shardings are compared by identity, then by
 * ==, and an equal object is remembered.  A value in host memory (a NumPy array or scalar, or
 * a number) must have the same type, dtype and shape.
 *
 * Python code can run in comparing shardings, layouts and shapes, and in finalizers. */
#include "call/direct_argument.h"

#include "base/state.h"

PyObject *
fj_direct_array_of(const FjDirectContext *context, PyObject *argument)
{
    return (PyObject *)Py_TYPE(argument) == context->jax[FJ_ARRAY_TYPE]
               ? Py_NewRef(argument)
               : fj_direct_ask(context, FJ_GET_DATA, argument);
}

/* (P) For a value in host memory. */
static int
describe_host(const FjDirectContext *context, FjDirectArgument *argument, PyObject *value)
{
    const FjState *state = fj_state_of(Py_TYPE(context));
    argument->host = Py_NewRef((PyObject *)Py_TYPE(value));
    if (fj_direct_is_number(Py_TYPE(value))) { /* without dtype and shape */
        return 0;
    }
    argument->dtype = PyObject_GetAttr(value, state->str_dtype);
    argument->shape =
        argument->dtype == NULL ? NULL : PyObject_GetAttr(value, state->str_shape);
    return argument->shape == NULL ? -1 : 0;
}

int
fj_direct_argument_describe(FjDirectArgument *argument, const FjDirectContext *context,
                            PyObject *value)
{
    argument->result = -1;
    if (fj_direct_is_host(context, Py_TYPE(value))) {
        return describe_host(context, argument, value);
    }
    PyObject *array = fj_direct_array_of(context, value);
    int done =
        array != NULL &&
        (array == value ||
         (argument->impl = fj_direct_ask(context, FJ_GET_IMPL, value)) != NULL) &&
        (argument->aval = fj_direct_ask(context, FJ_GET_AVAL, array)) != NULL &&
        (argument->sharding = fj_direct_ask(context, FJ_GET_SHARDING, array)) != NULL &&
        (argument->committed = fj_direct_ask(context, FJ_GET_COMMITTED, array)) != NULL &&
        (argument->layout = fj_direct_ask(context, FJ_GET_LAYOUT, array)) != NULL;
    Py_XDECREF(array);
    return done ? 0 : -1;
}

int
fj_direct_differs(int route)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
        return -1;
    }
    PyErr_Clear();
    return route;
}

int
fj_direct_equal(PyObject *x, PyObject *y)
{
    int equal = Py_TYPE(x) == Py_TYPE(y) ? PyObject_RichCompareBool(x, y, Py_EQ) : 0;
    if (equal < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        equal = 0;
    }
    return equal;
}

/* (P) fj_direct_argument_check for an array. */
static int
check_array(const FjDirectContext *context, FjDirectArgument *argument, PyObject *array,
            Py_ssize_t *compared)
{
    if ((PyObject *)Py_TYPE(array) != context->jax[FJ_ARRAY_TYPE]) {
        return FJ_ROUTE_type;
    }
    /* The array keeps everything compared by identity alive. */
    PyObject *found = fj_direct_ask(context, FJ_GET_AVAL, array);
    Py_XDECREF(found);
    if (found != argument->aval) {
        return fj_direct_differs(FJ_ROUTE_aval);
    }
    found = fj_direct_ask(context, FJ_GET_COMMITTED, array);
    Py_XDECREF(found);
    if (found != argument->committed) {
        return fj_direct_differs(FJ_ROUTE_sharding);
    }
    found = fj_direct_ask(context, FJ_GET_SHARDING, array);
    if (found == NULL) {
        return fj_direct_differs(FJ_ROUTE_sharding);
    }
    int equal = found == argument->sharding || found == argument->equal;
    if (!equal) {
        ++*compared;
        equal = fj_direct_equal(found, argument->sharding);
        if (equal > 0) {
            Py_XSETREF(argument->equal, Py_NewRef(found));
        }
    }
    Py_DECREF(found);
    if (equal <= 0) {
        return equal < 0 ? -1 : FJ_ROUTE_sharding;
    }
    if (argument->layout != NULL) {
        PyObject *layout = Py_NewRef(argument->layout); /* a new plan drops it */
        found = fj_direct_ask(context, FJ_GET_LAYOUT, array);
        equal = found != NULL && PyObject_RichCompareBool(found, layout, Py_EQ) > 0;
        Py_DECREF(layout);
        Py_XDECREF(found);
        if (!equal) { /* or an error: a deleted array has no layout */
            return fj_direct_differs(FJ_ROUTE_layout);
        }
    }
    return FJ_ROUTE_direct;
}

/* (P) fj_direct_argument_check for a value in host memory. */
static int
check_host(const FjDirectContext *context, const FjDirectArgument *argument, PyObject *value)
{
    const FjState *state = fj_state_of(Py_TYPE(context));
    if ((PyObject *)Py_TYPE(value) != argument->host) {
        return FJ_ROUTE_type;
    }
    if (argument->dtype == NULL) {
        return FJ_ROUTE_direct;
    }
    PyObject *found = PyObject_GetAttr(value, state->str_dtype);
    Py_XDECREF(found); /* the value holds it */
    if (found != argument->dtype) {
        return fj_direct_differs(FJ_ROUTE_aval);
    }
    found = PyObject_GetAttr(value, state->str_shape);
    int same = found == NULL ? -1 : PyObject_RichCompareBool(found, argument->shape, Py_EQ);
    Py_XDECREF(found);
    return same > 0 ? FJ_ROUTE_direct : fj_direct_differs(FJ_ROUTE_aval);
}

int
fj_direct_argument_check(FjDirectArgument *argument, const FjDirectContext *context,
                         PyObject *value, Py_ssize_t *compared)
{
    if (FJ_LIKELY(fj_direct_argument_is_array(argument))) {
        return check_array(context, argument, value, compared);
    }
    if (argument->host != NULL) {
        return check_host(context, argument, value);
    }
    if ((PyObject *)Py_TYPE(value) != context->jax[FJ_KEY_TYPE]) {
        return FJ_ROUTE_type;
    }
    PyObject *impl = fj_direct_ask(context, FJ_GET_IMPL, value);
    Py_XDECREF(impl); /* the keys hold it */
    if (impl != argument->impl) {
        return fj_direct_differs(FJ_ROUTE_aval);
    }
    PyObject *array = fj_direct_ask(context, FJ_GET_DATA, value);
    if (array == NULL) {
        return fj_direct_differs(FJ_ROUTE_type);
    }
    int route = check_array(context, argument, array, compared);
    Py_DECREF(array);
    return route;
}
