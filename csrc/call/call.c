/* The road of a call: bind -> match -> call -> build.
 *
 *   bind   the arguments become arguments by parameter (bind.c)
 *   match  the arguments against the predicted, the variant that followed the last one the
 * time before (match.c); where that fails they are flattened, and the Structure is looked up
 * (cache.c) or compiled (Python) call   the variant's callable, a flat jax.jit, on the arrays
 *   build  the result from the Output that it returns (build.c)
 *
 * Everything that is not this road is the Python side's, reached through methods of `options`:
 * prepare, compile, raise_binding_error, translate_error, before_raising_call,
 * inspect_new_trace and wait.  On a hit none of them is called, but
 * for before_raising_call and wait where the program can raise while it runs, or where
 * inspect_new_trace has not found out yet.
 *
 * Python code can run in each step: see the files named above; in the call itself, anything
 * at all, this very FilterJit included.  So a call keeps its own references to the variant
 * and the cache, and reads nothing of `self` after its first step but to replace `last`.
 */
#include "call/call.h"

#include <time.h>

#include "walk/build.h"
#include "walk/flatten.h"
#include "base/leafbuf.h"
#include "base/scratch.h"
#include "walk/match.h"

#define ARGUMENTS_INLINE 16

/* One call on its way. */
typedef struct {
    FjFilterJit *self;
    FjCaptured *captured;       /* NULL without */
    FjCache *cache;             /* owned */
    FjVariant *variant;         /* owned */
    unsigned long long started; /* nanoseconds; 0 where calls are not timed */
    FjLeafBuf arrays;
    PyObject *room[FJ_LEAFBUF_MANY];
    FjPackedArgs packed;
    PyObject **arguments;
    PyObject *arguments_inline[ARGUMENTS_INLINE];
} Call;

/* ---- errors ---- */

/* Lets the Python side replace the exception that is set: options.translate_error(self,
 * exception, variant or None, arrays or None) -> exception. */
static void
translate_error(Call *call)
{
    PyObject *exception = fj_compat_take_exception();
    if (exception == NULL || !PyObject_TypeCheck(exception, (PyTypeObject *)PyExc_Exception)) {
        fj_compat_give_exception(exception); /* KeyboardInterrupt and the like */
        return;
    }
    PyObject *arrays = fj_leafbuf_as_tuple(&call->arrays);
    PyObject *better =
        arrays == NULL
            ? NULL
            : PyObject_CallMethod(
                  call->self->options, "translate_error", "OOOO", call->self, exception,
                  call->variant == NULL ? Py_None : (PyObject *)call->variant, arrays);
    Py_XDECREF(arrays);
    if (better == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        Py_DECREF(exception); /* KeyboardInterrupt and the like */
        return;
    }
    if (better == NULL || !PyExceptionInstance_Check(better)) {
        PyErr_Clear();
        Py_XDECREF(better);
        fj_compat_give_exception(exception);
        return;
    }
    Py_DECREF(exception);
    fj_compat_give_exception(better);
}

/* Sets the TypeError of arguments that do not fit: options.raise_binding_error(self, args,
 * kwargs). */
static void
raise_binding_error(FjFilterJit *self, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames)
{
    PyObject *positional = PyTuple_New(nargs);
    PyObject *keywords = positional == NULL ? NULL : PyDict_New();
    PyObject *result = NULL;
    if (keywords == NULL) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    }
    for (Py_ssize_t i = 0; kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) {
            goto done;
        }
    }
    result = PyObject_CallMethod(self->options, "raise_binding_error", "OOO", self, positional,
                                 keywords);
    if (result != NULL) {
        PyErr_SetString(PyExc_TypeError, "the arguments do not fit the function's signature");
    }
done:
    Py_XDECREF(result);
    Py_XDECREF(keywords);
    Py_XDECREF(positional);
}

/* ---- the steps ---- */

int
fj_call_prepare(FjFilterJit *self)
{
    if (FJ_LIKELY(self->cache != NULL)) {
        return 0;
    }
    FjState *state = fj_state_of(Py_TYPE(self));
    PyObject *cache, *arrays;
    if (Py_EnterRecursiveCall(" in a jitted call")) {
        return -1;
    }
    PyObject *answer = PyObject_CallMethod(self->options, "prepare", "(O)", self);
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
                     "prepare() gave %zd arrays, its cache's function has %zd",
                     PyTuple_GET_SIZE(arrays), expected);
        Py_DECREF(answer);
        return -1;
    }
    if (self->cache == NULL) { /* another thread may have been faster */
        self->arrays = Py_NewRef(arrays);
        self->cache = (FjCache *)Py_NewRef(cache);
    }
    Py_DECREF(answer);
    return 0;
}

/* Makes room for the arguments and binds.  0, or -1 with an error. */
static int
bind_arguments(Call *call, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    FjSignature *signature = call->cache->signature;
    call->arguments =
        fj_scratch_new(call->arguments_inline, ARGUMENTS_INLINE, signature->num_parameters);
    if (call->arguments == NULL) {
        return -1;
    }
    memset(call->arguments, 0, (size_t)signature->num_parameters * sizeof(PyObject *));
    int fits = fj_bind(signature, args, nargs, kwnames, call->arguments, &call->packed);
    if (fits == 0) {
        raise_binding_error(call->self, args, nargs, kwnames);
    }
    return fits > 0 ? 0 : -1;
}

/* Compiles a variant for a Structure that the cache does not know: options.compile(self,
 * variant) -> callable.  `in_cache` is whether it goes into the cache at once.  A new
 * reference or NULL. */
static FjVariant *
compile_variant(Call *call, FjStructure *structure, int in_cache)
{
    FjCache *cache = call->cache;
    FjVariant *other;
    FjVariant *variant = fj_variant_new(cache->registry->state, cache->function, structure);
    if (variant == NULL) {
        return NULL;
    }
    variant->call =
        PyObject_CallMethod(call->self->options, "compile", "OO", call->self, variant);
    /* Another thread may have compiled the same meanwhile: then its variant is taken. */
    int found = variant->call == NULL ? -1 : fj_cache_find(cache, structure, &other);
    if (found == 0 && (!in_cache || fj_cache_add(cache, variant) == 0)) {
        return variant;
    }
    Py_DECREF(variant);
    return found > 0 ? other : NULL;
}

/* Flattens the arguments, and looks for the variant of their Structure, `*structure`, which is
 * the caller's.  1, 0 if there is none, -1 with an error. */
static int
look_up(Call *call, FjStructure **structure)
{
    FjCache *cache = call->cache;
    if (fj_compat_enter_frames(1) < 0) {
        return -1;
    }
    *structure = fj_flatten_arguments(cache->registry, cache->signature->names,
                                      call->arguments, &call->arrays);
    int found = *structure == NULL || fj_structure_hash(*structure) < 0
                    ? -1
                    : fj_cache_find(cache, *structure, &call->variant);
    fj_compat_leave_frames(1);
    return found;
}

/* The predicted was wrong: flatten, look up, compile.  0, or -1 with an error.
 *
 * A call lists what it compiles before that is traced, so that threads that miss it at once
 * share one callable, and JAX lets the others wait for the first. */
static int
find_variant(Call *call, int in_cache)
{
    FjStructure *structure = NULL;
    /* A Call takes so much of the stack that what runs in here and calls again, a static's
     * __hash__ say, would use it up before Python has counted to its limit. */
    if (Py_EnterRecursiveCall(" in a jitted call")) {
        return -1;
    }
    int found = look_up(call, &structure);
    if (found == 0) {
        call->variant = compile_variant(call, structure, in_cache);
        found = call->variant == NULL ? -1 : 1;
    }
    Py_LeaveRecursiveCall();
    Py_XDECREF(structure);
    return found < 0 ? -1 : 0;
}

/* The arrays in the function itself come first.  0, or -1 with MemoryError. */
static int
push_own_arrays(Call *call)
{
    PyObject *own = call->self->arrays;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(own); i++) {
        if (fj_leafbuf_push(&call->arrays, PyTuple_GET_ITEM(own, i)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Finds the variant and collects the arrays of the arguments. */
static int
match_arguments(Call *call)
{
    FjVariant *last = call->self->last, *predicted = NULL;
    const FjCapture *known = NULL;
    Py_ssize_t count = 0;
    if (call->captured != NULL && call->captured->last != NULL) {
        predicted =
            call->captured->last; /* what is captured is known to fit this, and no other */
        known = call->captured->items;
        count = call->captured->count;
    }
    else if (FJ_LIKELY(last != NULL)) {
        predicted = fj_cache_predict(call->cache, last);
        if (predicted->memo != NULL) {
            known = fj_memo_check(predicted->memo, predicted->structure, call->arguments);
            count = known != NULL;
        }
    }
    if (FJ_LIKELY(predicted != NULL && !predicted->evicted)) {
        Py_INCREF(predicted);
        FjMatch matched = fj_match_arguments(predicted->structure, call->arguments, known,
                                             count, &call->arrays);
        if (FJ_LIKELY(matched == FJ_MATCH_YES)) {
            if (known == NULL && predicted->structure->count >= FJ_MEMO_WORTH) {
                fj_memo_learn(&predicted->memo, predicted->structure, call->arguments);
            }
            call->variant = predicted;
            return 0;
        }
        Py_DECREF(predicted);
        if (matched == FJ_MATCH_ERROR) {
            /* KeyboardInterrupt and the like; and where a static's __eq__ calls again without
             * end, trying twice in each call would take for ever. */
            if (!PyErr_ExceptionMatches(PyExc_Exception) ||
                PyErr_ExceptionMatches(PyExc_RecursionError)) {
                return -1;
            }
            /* It is met again by flatten.c or the look-up, which know its path. */
            PyErr_Clear();
        }
    }
    if (find_variant(call, 1) < 0) {
        return -1;
    }
    last = call->self->last; /* others may have called meanwhile */
    if (last != NULL) {
        fj_cache_set_next(call->cache, last, call->variant);
    }
    return 0;
}

/* Where a program can raise while it runs, or where that is not known yet: the Python side
 * finds out, or waits.  0, or -1 with an error. */
static int
inspect_new_trace(Call *call, FjOutput *output)
{
    FjVariant *variant = call->variant;
    if (variant->traces[output->trace].may_raise == FJ_MAY_RAISE_UNKNOWN) {
        PyObject *arrays = fj_leafbuf_as_tuple(&call->arrays);
        PyObject *answer = arrays == NULL
                               ? NULL
                               : PyObject_CallMethod(call->self->options, "inspect_new_trace",
                                                     "OOO", variant, arrays, output->arrays);
        Py_XDECREF(arrays);
        if (answer == NULL) {
            return -1;
        }
        if (answer != Py_None) {
            fj_variant_set_may_raise(variant, output->trace,
                                     answer == Py_True ? FJ_MAY_RAISE_YES : FJ_MAY_RAISE_NO);
        }
        Py_DECREF(answer);
    }
    if (variant->traces[output->trace].may_raise == FJ_MAY_RAISE_YES) {
        PyObject *answer =
            PyObject_CallMethod(call->self->options, "wait", "(O)", output->arrays);
        Py_XDECREF(answer);
        return answer == NULL ? -1 : 0;
    }
    return 0;
}

/* The user's tree from what the variant's callable returned; steals `result`. */
static PyObject *
build_result(Call *call, PyObject *result)
{
    FjVariant *variant = call->variant;
    FjOutput *output = (FjOutput *)result;
    FjStructure *structure;
    PyObject *tree = NULL;
    if (FJ_UNLIKELY(Py_TYPE(result) != call->cache->registry->state->output)) {
        PyErr_Format(PyExc_TypeError, "a variant's callable returned %.200s, not Output",
                     Py_TYPE(result)->tp_name);
        goto done;
    }
    structure = fj_variant_output_structure(variant, output);
    if (FJ_UNLIKELY(structure == NULL)) {
        goto done;
    }
    /* An output that still holds its structure was not compiled: jax_disable_jit. */
    if (FJ_UNLIKELY(output->structure == NULL &&
                    variant->traces[output->trace].may_raise != FJ_MAY_RAISE_NO) &&
        inspect_new_trace(call, output) < 0) {
        goto done;
    }
    tree = fj_build_tree(structure, ((PyTupleObject *)output->arrays)->ob_item);
done:
    Py_DECREF(result);
    return tree;
}

static unsigned long long
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (unsigned long long)time.tv_sec * 1000000000ULL + (unsigned long long)time.tv_nsec;
}

/* Counts a call that has returned.  0, or -1 with an error, after a trace. */
static int
count_call(Call *call, Py_ssize_t traces_before)
{
    FjCache *cache = call->cache;
    FjVariant *variant = call->variant;
    if (FJ_UNLIKELY(variant->count != traces_before)) {
        return fj_cache_insert_traced(cache, variant);
    }
    fj_cache_touch(cache, variant);
    cache->hits++;
    variant->hits++;
    if (FJ_UNLIKELY(call->started != 0)) {
        unsigned long long taken = now() - call->started;
        cache->hit_time += taken;
        variant->hit_time += taken;
    }
    return 0;
}

/* Makes the variant the next call's predicted. */
static inline void
remember(FjVariant **last, FjVariant *variant)
{
    if (FJ_UNLIKELY(*last != variant)) {
        Py_INCREF(variant);
        Py_XSETREF(*last, variant);
    }
}

/* Tells the Python side of a call whose program can raise, or of which that is not known yet:
 * a program that was traced inside another one, or by `lower`, is first inspected after its
 * first call.  0, or -1 with an error. */
static int
before_raising_call(Call *call)
{
    if (!(call->variant->alerts & FJ_ALERT_RAISES)) {
        return 0;
    }
    PyObject *answer =
        PyObject_CallMethod(call->self->options, "before_raising_call", "(O)", call->variant);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

/* After a call that failed: what has never been traced to the end is not kept, and neither are
 * others than the cache can hold. */
static void
clean_up(Call *call, Py_ssize_t traces_before)
{
    FjVariant *variant = call->variant;
    PyObject *exception = fj_compat_take_exception();
    if (variant->count == 0) {
        fj_cache_remove(call->cache, variant);
    }
    else if (variant->count != traces_before &&
             fj_cache_insert_traced(call->cache, variant) < 0) {
        PyErr_Clear(); /* the first counts */
    }
    fj_compat_give_exception(exception);
}

/* Calls the variant and builds the result. */
static PyObject *
run(Call *call)
{
    FjVariant *variant = call->variant;
    Py_ssize_t traces_before = variant->count;
    Py_ssize_t deferred_before = 0;
    PyObject *result = NULL;
    if (FJ_UNLIKELY(variant->alerts != 0)) {
        /* Calls that are under way in this thread, which this one is part of. */
        deferred_before = fj_variant_count_deferred(variant);
        if (before_raising_call(call) < 0) {
            goto done;
        }
    }
    result =
        PyObject_Vectorcall(variant->call, call->arrays.items,
                            (size_t)call->arrays.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    if (FJ_LIKELY(result != NULL)) {
        result = build_result(call, result);
    }
done:
    if (FJ_UNLIKELY(variant->deferred_count > 0)) {
        result = fj_variant_run_deferred(variant, deferred_before, result);
    }
    if (FJ_UNLIKELY(result == NULL)) {
        clean_up(call, traces_before);
        return NULL;
    }
    if (FJ_UNLIKELY(count_call(call, traces_before) < 0)) {
        Py_DECREF(result);
        return NULL;
    }
    remember(&call->self->last, variant);
    if (call->captured != NULL) {
        remember(&call->captured->last, variant);
    }
    return result;
}

/* ---- the road ---- */

static void
end_call(Call *call)
{
    fj_leafbuf_clear(&call->arrays);
    fj_bind_release(&call->packed);
    fj_scratch_free(call->arguments, call->arguments_inline);
    Py_XDECREF(call->variant);
    Py_DECREF(call->cache);
}

/* Binds.  0, or -1 with an error and everything released. */
static int
start_call(Call *call, FjFilterJit *self, FjCaptured *captured, PyObject *const *args,
           Py_ssize_t nargs, PyObject *kwnames)
{
    if (fj_call_prepare(self) < 0) {
        return -1;
    }
    call->self = self;
    call->captured = captured;
    call->cache = (FjCache *)Py_NewRef((PyObject *)self->cache);
    call->variant = NULL;
    call->started = FJ_UNLIKELY(call->cache->timed) ? now() : 0;
    call->packed.varargs = call->packed.varkw = NULL;
    fj_leafbuf_init(&call->arrays, call->room, FJ_LEAFBUF_MANY);
    if (FJ_LIKELY(bind_arguments(call, args, nargs, kwnames) == 0)) {
        return 0;
    }
    translate_error(call);
    end_call(call);
    return -1;
}

/* Binds and matches.  0, or -1 with an error and everything released. */
static int
begin_call(Call *call, FjFilterJit *self, FjCaptured *captured, PyObject *const *args,
           Py_ssize_t nargs, PyObject *kwnames)
{
    if (FJ_UNLIKELY(start_call(call, self, captured, args, nargs, kwnames) < 0)) {
        return -1;
    }
    if (FJ_LIKELY(push_own_arrays(call) == 0 && match_arguments(call) == 0)) {
        return 0;
    }
    translate_error(call);
    end_call(call);
    return -1;
}

PyObject *
fj_call_captured(FjFilterJit *self, FjCaptured *captured, PyObject *const *args,
                 Py_ssize_t nargs, PyObject *kwnames)
{
    Call call;
    if (begin_call(&call, self, captured, args, nargs, kwnames) < 0) {
        return NULL;
    }
    call.cache->calls++;
    PyObject *result = run(&call);
    if (FJ_UNLIKELY(result == NULL)) {
        translate_error(&call);
    }
    end_call(&call);
    return result;
}

PyObject *
fj_call(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return fj_call_captured((FjFilterJit *)op, NULL, args, PyVectorcall_NARGS(nargsf),
                            kwnames);
}

PyObject *
fj_call_lookup(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Call call;
    if (start_call(&call, (FjFilterJit *)op, NULL, args, nargs, kwnames) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (push_own_arrays(&call) == 0 && find_variant(&call, 0) == 0) {
        PyObject *arrays = fj_leafbuf_as_tuple(&call.arrays);
        result = arrays == NULL ? NULL : Py_BuildValue("(ON)", call.variant, arrays);
    }
    if (result == NULL) {
        translate_error(&call);
    }
    end_call(&call);
    return result;
}

PyObject *
fj_call_peek(PyObject *op, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Call call;
    if (start_call(&call, (FjFilterJit *)op, NULL, args, nargs, kwnames) < 0) {
        return NULL;
    }
    FjStructure *structure = NULL;
    PyObject *result = NULL;
    int found = -1;
    if (push_own_arrays(&call) == 0 && !Py_EnterRecursiveCall(" in a jitted call")) {
        found = look_up(&call, &structure); /* see find_variant */
        Py_LeaveRecursiveCall();
    }
    if (found >= 0) {
        PyObject *arrays = fj_leafbuf_as_tuple(&call.arrays);
        result = arrays == NULL
                     ? NULL
                     : Py_BuildValue("(OON)",
                                     call.variant == NULL ? Py_None : (PyObject *)call.variant,
                                     structure, arrays);
    }
    if (result == NULL) {
        translate_error(&call);
    }
    Py_XDECREF(structure);
    end_call(&call);
    return result;
}
