/* The call path of a FilterJit.  A call has four steps:
 *
 *   bind   Assigns the arguments to the parameters (bind.c).
 *   match  Compares the arguments with the Structure of the predicted variant, and collects
 *          their arrays (match.h).  The prediction is the variant that followed the last one
 *          the time before (fj_cache_predict).  If the arguments don't match, flattens them
 *          (flatten.c) and looks up their Structure (cache.c).  If no variant has it, Python
 *          compiles one.
 *   call   Calls the variant's callable, a Direct, with the arrays.
 *   build  Builds the user's tree (build.c) from the Output that the callable returned.
 *
 * Python does everything else, in hooks (call_hooks.c).  A hit calls at most one of
 * them: `run`, or `finish` if only an older trace of its variant can raise.
 *
 * Python code can run in each step: see the files above.  The call step can run any code,
 * including a call of the same FilterJit.  So a call owns a reference to the variant.  From
 * `self`, which the caller holds, it only uses the members that never change once the cache
 * exists: `hooks`, `arrays` and `cache`. */
#include "call/call.h"

#include "base/leafbuf.h"
#include "base/scratch.h"
#include "call/call_hooks.h"
#include "walk/build.h"
#include "walk/flatten.h"
#include "walk/match.h"

#define ARGUMENTS_INLINE 16

typedef struct {
    FjFilterJit *self;
    FjArgumentsCheck *check;    /* or NULL */
    int uncompiled;             /* the function itself ran: jax_disable_jit */
    int misfits;                /* the arguments don't fit the signature */
    Py_ssize_t traces_before;   /* number of the variant's traces when its call began */
    int run_by_hook;            /* the `run` hook made the call */
    FjCache *cache;             /* of `self` */
    FjVariant *last;            /* the last call's variant (owned), or NULL */
    FjVariant *variant;         /* owned; NULL until found */
    unsigned long long started; /* in nanoseconds; 0 if calls aren't timed */
    unsigned long long waited;  /* for a program that can raise */
    unsigned long long ran;     /* the executable's time, if timed */
    FjLeafBuf arrays;           /* of the function itself, then of the arguments */
    PyObject *arrays_inline[FJ_LEAFBUF_MANY];
    FjPackedArgs packed;
    PyObject **arguments; /* borrowed, by parameter */
    PyObject *arguments_inline[ARGUMENTS_INLINE];
} Call;

/* ---- bind ---- */

/* Also collects the arrays of the function itself.  0, or -1 with an error or if the arguments
 * don't fit. */
static inline int
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
    call->misfits = fits == 0;
    if (FJ_UNLIKELY(fits <= 0)) {
        return -1;
    }
    PyObject *own = call->self->arrays;
    Py_ssize_t count = PyTuple_GET_SIZE(own);
    return FJ_LIKELY(count == 0)
               ? 0
               : fj_leafbuf_extend(&call->arrays, ((PyTupleObject *)own)->ob_item, count);
}

/* ---- match ---- */

/* Compiles a variant for a new Structure.  Returns a new reference. */
static FjVariant *
compile_variant(Call *call, FjStructure *structure, int insert)
{
    FjCache *cache = call->cache;
    FjVariant *other;
    FjVariant *variant = fj_variant_new(cache->registry->state, cache->function, structure);
    if (variant == NULL) {
        return NULL;
    }
    variant->call = fj_hooks_compile(call->self, variant);
    /* If a different thread has inserted an equal variant meanwhile, the call uses that. */
    int found, added = 0;
    FJ_LOCK(cache);
    found = variant->call == NULL ? -1 : fj_cache_find(cache, structure, &other);
    if (found == 0 && insert) {
        added = fj_cache_add(cache, variant);
    }
    FJ_UNLOCK();
    if (found == 0 && added == 0) {
        return variant;
    }
    Py_DECREF(variant);
    return found > 0 ? other : NULL;
}

/* Checks the arguments, with this Structure.  -1 with an error, or without one if the check
 * gives up: the caller uses Flax.  */
static int
accept_arguments(Call *call, const FjStructure *structure, int was_flattened)
{
    if (FJ_LIKELY(call->check == NULL)) {
        return structure == NULL ? -1 : 0;
    }
    PyObject *const *arrays = call->arrays.items + PyTuple_GET_SIZE(call->self->arrays);
    return call->check->accept(call->check, structure, arrays, was_flattened) > 0 ? 0 : -1;
}

/* Returns the Structure of the arguments, or NULL with an error or if the check gives up. */
static FjStructure *
flatten_arguments(Call *call)
{
    FjCache *cache = call->cache;
    FJ_LEAFBUF(objects, FJ_LEAFBUF_FEW);
    FjStructure *structure =
        fj_flatten_arguments(cache->registry, cache->signature->names, cache->signature->flags,
                             call->arguments, fj_hooks_choose, call->self, &call->arrays,
                             call->check == NULL ? &objects : &call->check->objects);
    fj_leafbuf_clear(&objects); /* the arguments hold them too */
    if (accept_arguments(call, structure, 1) < 0) {
        Py_CLEAR(structure);
    }
    return structure;
}

/* Finds the variant of the arguments without a prediction.  Returns their Structure, or NULL
 * with an error or if the check gives the call up.  Only FJ_FIND can leave `call->variant`
 * NULL.
 *
 * For a call, the new variant is in the cache before it is traced.  So concurrent
 * threads share one callable, and JAX makes all but the first wait for the trace. */
static FJ_NOINLINE FjStructure *
find_variant(Call *call, FjGoal goal)
{
    FjStructure *structure = NULL;
    /* A Call uses much stack.  Code in here that makes a call (a static's __hash__) could
     * exhaust the stack before Python's frames reach the recursion limit. */
    if (Py_EnterRecursiveCall(" in a jitted call")) {
        return NULL;
    }
    int found = -1;
    if (fj_compat_enter_frames() == 0) {
        structure = flatten_arguments(call);
        if (structure != NULL && fj_structure_hash(structure) == 0) {
            found = fj_cache_find(call->cache, structure, &call->variant);
        }
        fj_compat_leave_frames();
    }
    if (found == 0 && goal != FJ_FIND) {
        call->variant = compile_variant(call, structure, goal == FJ_FIND_OR_ADD);
        found = call->variant == NULL ? -1 : 1;
    }
    Py_LeaveRecursiveCall();
    if (found < 0) {
        Py_CLEAR(structure);
    }
    return structure;
}

/* Returns the buffer for numbered objects, or NULL if nothing needs them. */
static inline FjLeafBuf *
numbered_objects(Call *call)
{
    return call->check == NULL ? NULL : &call->check->objects;
}

static int
match_predicted(Call *call, FjVariant *predicted, FjMatchAttempts *attempts)
{
    return fj_match_arguments(predicted->structure, &predicted->known[fj_lane()][0],
                              call->arguments, &call->arrays, numbered_objects(call),
                              attempts);
}

/* Finds the variant among those that calls have switched to.  1, 0, or -1 with an error or if
 * the check gives up. */
static int
match_recent(Call *call, const FjVariant *predicted, FjMatchAttempts *attempts)
{
    for (int i = 0; !FJ_FREE_THREADED && i < FJ_CACHE_RECENT; i++) {
        FjVariant *variant = fj_cache_recent(call->cache, i);
        if (variant != NULL && variant != predicted &&
            fj_match_try(variant->structure, variant->known[0][0], call->arguments, attempts,
                         &call->arrays, numbered_objects(call))) {
            call->variant = (FjVariant *)Py_NewRef((PyObject *)variant);
            if (accept_arguments(call, variant->structure, 0) < 0) {
                Py_CLEAR(call->variant);
                return -1;
            }
            return 1;
        }
    }
    return 0;
}

/* After the predicted variant didn't match: like match_recent, but first without comparing
 * mutable statics, then with. */
static FJ_NOINLINE int
match_others(Call *call, FjVariant *predicted, FjMatchAttempts *attempts, int *matched)
{
    int found = match_recent(call, predicted, attempts);
    if (found == 0 && attempts->skipped_mutable) {
        attempts->same_object_only = 0;
        *matched = match_predicted(call, predicted, attempts);
        found = *matched == 0 ? match_recent(call, predicted, attempts) : 0;
    }
    return found;
}

/* Returns the predicted variant (new reference, or taken from `call->last`), or NULL. */
static inline FjVariant *
predict(Call *call)
{
    FjVariant *predicted = call->last;
    if (FJ_LIKELY(predicted != NULL &&
                  FJ_LOAD_SIZE(predicted->next_variant) == 0)) { /* itself */
        call->last = NULL;
    }
    else if (predicted != NULL) {
        FJ_LOCK(call->cache);
        predicted = fj_cache_predict(call->cache, predicted);
        Py_INCREF(predicted);
        FJ_UNLOCK();
    }
    if (FJ_UNLIKELY(predicted != NULL && FJ_LOAD_INT(predicted->evicted))) {
        Py_CLEAR(predicted);
    }
    return predicted;
}

/* Finds the variant and collects arrays.  -1 with an error, or if the check gives up. */
static int
match_arguments(Call *call)
{
    call->last = fj_cache_last(call->cache);
    FjVariant *predicted = predict(call);
    if (FJ_LIKELY(predicted != NULL)) {
        int found = 0;
        FjMatchAttempts attempts = {.same_object_only =
                                        !FJ_FREE_THREADED && call->cache->recent[0] != 0};
        int matched = match_predicted(call, predicted, &attempts);
        if (FJ_UNLIKELY(matched == 0)) {
            found = match_others(call, predicted, &attempts, &matched);
        }
        if (FJ_LIKELY(matched > 0 && accept_arguments(call, predicted->structure, 0) == 0)) {
            call->variant = predicted;
            return 0;
        }
        if (call->last == NULL) {
            call->last = predicted;
        }
        else {
            Py_DECREF(predicted);
        }
        if (matched > 0 || found < 0) {
            return -1;
        }
        if (found > 0) {
            fj_cache_set_next(call->cache, call->last, call->variant);
            return 0;
        }
        if (matched < 0) {
            /* An interrupt fails the call.  So does a RecursionError: if a static's __eq__
             * makes the same call endlessly, two attempts per call would take forever. */
            if (!PyErr_ExceptionMatches(PyExc_Exception) ||
                PyErr_ExceptionMatches(PyExc_RecursionError)) {
                return -1;
            }
            /* Flattening or the look-up raises this error too, with the path of the value. */
            PyErr_Clear();
        }
    }
    FjStructure *structure = find_variant(call, FJ_FIND_OR_ADD);
    if (structure == NULL) {
        return -1;
    }
    Py_DECREF(structure);
    if (call->last != NULL) {
        fj_cache_set_next(call->cache, call->last, call->variant);
    }
    return 0;
}

/* ---- call ---- */

/* Returns an Output.  The call owns the variant, which keeps each callable it has had. */
static inline PyObject *
call_variant(Call *call, FjVariant *variant)
{
    PyObject *callable = FJ_LOAD_POINTER(variant->call);
    if (FJ_UNLIKELY(callable == NULL)) {
        return fj_variant_is_freed();
    }
    size_t nargsf = (size_t)call->arrays.count | PY_VECTORCALL_ARGUMENTS_OFFSET;
    int guards_recursion = Py_TYPE(callable) == call->cache->registry->state->direct ||
                           PyFunction_Check(callable);
    return FJ_LIKELY(guards_recursion)
               ? PyObject_Vectorcall(callable, call->arrays.items, nargsf, NULL)
               : fj_call_nested(callable, call->arrays.items, nargsf, NULL);
}

/* ---- build ---- */

/* Builds the user's tree from an Output of the variant's callable (stolen). */
static PyObject *
build_result(Call *call, PyObject *result)
{
    FjVariant *variant = call->variant;
    FjOutput *output = (FjOutput *)result;
    PyObject *tree = NULL;
    FjStructure *structure = fj_variant_output_structure(variant, result);
    if (FJ_UNLIKELY(structure == NULL)) {
        goto done;
    }
    /* With a Structure, the Output bypassed JAX (jax_disable_jit) and has no trace. */
    if (FJ_UNLIKELY(output->structure != NULL)) {
        call->uncompiled = 1;
    }
    int needs_finish = FJ_LOAD_SIZE(variant->num_traces) != call->traces_before ||
                       call->uncompiled ||
                       fj_variant_trace_may_raise(variant, output->trace) != FJ_MAY_RAISE_NO;
    if (FJ_UNLIKELY(needs_finish && !call->run_by_hook) &&
        fj_hooks_finish(call->self, variant, &call->arrays, output) < 0) {
        goto done;
    }
    call->ran = output->ran;
    call->waited = output->waited;
    tree = fj_build_tree(structure, ((PyTupleObject *)output->arrays)->ob_item);
done:
    Py_DECREF(result);
    return tree;
}

/* ---- a whole call ---- */

/* After a successful call: counts a hit, or inserts a variant that was just traced or that
 * first ran without a trace.  0, or -1 with an error, only after an insertion. */
static int
after_success(Call *call)
{
    FjCache *cache = call->cache;
    FjVariant *variant = call->variant;
    if (FJ_UNLIKELY(FJ_LOAD_SIZE(variant->num_traces) != call->traces_before)) {
        return fj_cache_insert_traced(cache, variant);
    }
    if (FJ_UNLIKELY(!fj_variant_is_cached(variant))) {
        FJ_STORE_INT(variant->ran, 1);
        if (fj_cache_insert_traced(cache, variant) < 0) {
            return -1;
        }
    }
    fj_cache_touch(cache, variant);
    if (FJ_UNLIKELY(call->uncompiled)) {
        return 0;
    }
    (void)fj_count(&cache->hits);
    (void)fj_count(&variant->hits);
    if (FJ_UNLIKELY(call->started != 0)) {
        unsigned long long taken = fj_compat_now() - call->started - call->waited;
        fj_times_add(&cache->times, taken, call->waited, call->ran);
        fj_times_add(&variant->times, taken, call->waited, call->ran);
    }
    return 0;
}

/* After a failed call: removes an uncached variant, inserts one that was just traced. */
static void
after_failure(Call *call)
{
    FjVariant *variant = call->variant;
    PyObject *exception = fj_compat_get_raised();
    if (!fj_variant_is_cached(variant)) {
        fj_cache_remove(call->cache, variant);
    }
    else if (FJ_LOAD_SIZE(variant->num_traces) != call->traces_before &&
             fj_cache_insert_traced(call->cache, variant) < 0) {
        PyErr_Clear();
    }
    fj_compat_set_raised(exception);
}

/* The last two steps: calls the variant and builds the result. */
static PyObject *
call_and_build(Call *call)
{
    FjVariant *variant = call->variant;
    PyObject *result = NULL;
    call->traces_before = FJ_LOAD_SIZE(variant->num_traces);
    call->run_by_hook = FJ_LOAD_INT(variant->run_by_hook);
    if (FJ_LIKELY(!call->run_by_hook)) {
        result = call_variant(call, variant);
        if (FJ_UNLIKELY(result == NULL)) {
            (void)fj_hooks_finish(call->self, variant, &call->arrays, NULL);
            call->run_by_hook =
                FJ_LOAD_INT(variant->was_switched) && PyErr_ExceptionMatches(PyExc_Exception);
        }
    }
    if (FJ_UNLIKELY(call->run_by_hook)) {
        result = fj_hooks_run(call->self, variant, &call->arrays);
    }
    if (FJ_LIKELY(result != NULL)) {
        result = build_result(call, result);
    }
    if (FJ_UNLIKELY(result == NULL)) {
        after_failure(call);
        return NULL;
    }
    if (FJ_UNLIKELY(after_success(call) < 0)) {
        Py_DECREF(result);
        return NULL;
    }
    return result;
}

/* Initializes `call` for bind_arguments, which sets `arguments`.  0, or -1 with the error of
 * hooks.prepare and nothing to release. */
static inline int
start_call(Call *call, FjFilterJit *self, FjArgumentsCheck *check)
{
    if (fj_hooks_prepare(self) < 0) {
        return -1;
    }
    call->self = self;
    call->check = check;
    call->cache = self->cache;
    call->last = NULL;
    call->variant = NULL;
    call->started = FJ_UNLIKELY(FJ_LOAD_INT(call->cache->timed)) ? fj_compat_now() : 0;
    call->uncompiled = call->misfits = call->run_by_hook = 0;
    call->waited = call->ran = 0;
    call->packed.varargs = call->packed.varkw = NULL;
    fj_leafbuf_init(&call->arrays, call->arrays_inline, FJ_LEAFBUF_MANY);
    return 0;
}

/* The next prediction starts from this variant or, after a failed call, from the last one. */
static inline void
remember(Call *call, int failed)
{
    FjVariant **next = failed && call->last != NULL ? &call->last : &call->variant;
    FjVariant *variant = *next;
    if (!FJ_FREE_THREADED && call->cache->last[0][0] == variant) {
        return;
    }
    if (variant == NULL || FJ_LOAD_INT(variant->evicted) ||
        (failed && !fj_variant_is_cached(variant))) {
        return;
    }
    *next = NULL;
    fj_cache_set_last(call->cache, variant);
}

static inline void
end_call(Call *call)
{
    fj_leafbuf_clear(&call->arrays);
    Py_XDECREF(call->packed.varargs);
    Py_XDECREF(call->packed.varkw);
    fj_scratch_free(call->arguments, call->arguments_inline);
    Py_XDECREF(call->variant);
    Py_XDECREF(call->last);
}

/* Asks Python about a failed call or look-up: see fj_hooks_failed. */
static PyObject *
after_error(Call *call, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
            int is_call)
{
    PyObject *given = call->misfits ? fj_bind_pack(args, nargs, kwnames) : NULL;
    PyObject *other =
        call->misfits && given == NULL
            ? NULL
            : fj_hooks_failed(call->self, call->variant, &call->arrays, given, is_call);
    Py_XDECREF(given);
    return other;
}

PyObject *
fj_call_with_check(FjFilterJit *self, FjArgumentsCheck *check, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames)
{
    Call call;
    PyObject *result = NULL, *other = NULL;
    if (FJ_UNLIKELY(start_call(&call, self, check) < 0)) {
        return NULL;
    }
    if (FJ_LIKELY(bind_arguments(&call, args, nargs, kwnames) == 0 &&
                  match_arguments(&call) == 0)) {
        (void)fj_count(&call.cache->calls);
        result = call_and_build(&call);
    }
    if (FJ_UNLIKELY(result == NULL)) {
        other = after_error(&call, args, nargs, kwnames, 1);
    }
    remember(&call, result == NULL);
    end_call(&call);
    if (FJ_UNLIKELY(other != NULL)) {
        result = PyObject_Vectorcall(other, args, (size_t)nargs, kwnames);
        Py_DECREF(other);
    }
    return result;
}

PyObject *
fj_call(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return fj_call_with_check((FjFilterJit *)op, NULL, args, PyVectorcall_NARGS(nargsf),
                              kwnames);
}

/* ---- look-ups without a call ---- */

PyObject *
fj_call_find(FjFilterJit *self, FjGoal goal, PyObject *const *args, Py_ssize_t nargs,
             PyObject *kwnames)
{
    Call call;
    FjStructure *structure = NULL;
    PyObject *found = NULL;
    if (start_call(&call, self, NULL) < 0) {
        return NULL;
    }
    if (bind_arguments(&call, args, nargs, kwnames) == 0) {
        structure = find_variant(&call, goal);
    }
    if (structure == NULL) {
        (void)after_error(&call, args, nargs, kwnames, 0);
    }
    else {
        PyObject *variant = call.variant == NULL ? Py_None : (PyObject *)call.variant;
        found = Py_BuildValue("(ONN)", variant, structure, fj_leafbuf_as_tuple(&call.arrays));
    }
    end_call(&call);
    return found;
}
