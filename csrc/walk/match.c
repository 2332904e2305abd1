/* The walk of a cache hit: compares a tree with a Structure and collects the tree's arrays.
 *
 * It walks the nodes and the tree side by side, pushes each array it meets, and stops at the
 * first difference.  It reads containers by their kind (kinds.h), in one of two modes:
 *
 *   borrowed  Runs no Python code, so nothing can change or be freed, and takes no
 *             references.  Common containers allocate nothing while the buffers are large
 *             enough.  Returns FJ_NEEDS_PYTHON if an object can't be compared without
 *             Python code.
 *   held      Can run Python code, and holds a reference to each object it looks at.
 *
 * A hit starts borrowed unless the Structure has `may_run_python`, and usually ends so.
 * Without `may_run_python`, every static (a leaf or field that isn't an array) is inert
 * (statics.h) or has a snapshot without `may_run_python`, no leaf needs `is_array`, all keys
 * are plain, and every container is read directly.  After FJ_NEEDS_PYTHON, the match
 * starts over in held mode.
 *
 * Without a GIL, other threads can change a container at any time, so every match is held: the
 * children are read in one step, under the container's lock.  Most of a model consists of
 * statics that are the Structure's very objects.  These need no references.
 *
 * If a large argument has been the same object for some calls, it is recorded after a borrowed
 * match (known.h).  While it is unchanged, it isn't walked.
 *
 * Numbered objects (Sharing in structure.h) are pushed too, before their children.  A REF
 * matches the object with its number, and all numbered objects must be distinct.
 *
 * Invariant: unless the result is 1, the buffers keep their former sizes.
 *
 * Python code runs only in held mode (match_nodes.c). */
#include "walk/match.h"

#include "walk/match_nodes.h"

/* Checks a large argument, or matches it. */
static FJ_NOINLINE int
match_large(FjMatcher *m, PyObject *object, FjKnownArgument *argument)
{
    const FjNode *node = m->next;
    if (FJ_LIKELY(fj_known_check(argument, m->registry, object))) {
        m->next = fj_structure_skip(m->structure, node);
        return fj_known_push(argument, m->arrays, m->objects);
    }
    int result = fj_match_node(m, object);
    if (result > 0 && !m->is_try) {
        fj_known_note(argument, m->structure, node, object);
    }
    return result;
}

static int
match_argument(FjMatcher *m, PyObject *object, FjKnownArgument *argument)
{
    /* Not match_child, which treats registry->missing as absent: a caller can pass it. */
    if (m->next->code == FJ_MISSING) {
        m->next++;
        return object == NULL;
    }
    return object == NULL     ? 0
           : argument != NULL ? match_large(m, object, argument)
                              : fj_match_node(m, object);
}

/* Also checks that the numbered objects are distinct.  `known` can be NULL. */
static int
match_arguments(FjMatcher *m, PyObject *const *objects, Py_ssize_t count,
                FjKnownArguments *known)
{
    Py_ssize_t arrays_before = m->arrays->count;
    FjKnownArguments *recorded = m->holds ? NULL : known;
    int result = 1;
    for (Py_ssize_t i = 0; i < count && result > 0; i++) {
        result = match_argument(m, objects[i],
                                recorded == NULL ? NULL : fj_known_find(recorded, i));
        if (result == 0 && m->attempts != NULL && !m->is_try) {
            m->attempts->failed = i;
        }
    }
    if (result > 0 && m->structure->num_numbered > 0) {
        result = fj_known_are_distinct(known, m->objects->items, m->objects->count);
    }
    if (FJ_UNLIKELY(result <= 0)) {
        fj_leafbuf_truncate(m->arrays, arrays_before);
        if (m->objects != NULL) {
            fj_leafbuf_truncate(m->objects, 0);
        }
    }
    return result;
}

static int
match_all(FjMatcher *m, PyObject *const *objects, Py_ssize_t count, FjKnownArguments *known)
{
    const FjNode *first = m->next;
    if (!FJ_FREE_THREADED && !m->structure->may_run_python) {
        int result = match_arguments(m, objects, count, known);
        if (FJ_LIKELY(result != FJ_NEEDS_PYTHON)) {
            return result;
        }
    }
    if (fj_compat_enter_frames() < 0) {
        return -1;
    }
    m->next = first;
    m->holds = 1;
    /* Use nothing remembered from before Python code ran, except what this call owns. */
    int result = match_arguments(m, objects, count, FJ_FREE_THREADED ? known : NULL);
    fj_compat_leave_frames();
    return result;
}

/* `stack` has FJ_SCRATCH_INLINE items. */
static inline FjMatcher
matcher_of(FjStructure *structure, const FjNode *first, FjLeafBuf *arrays, FjLeafBuf *objects,
           PyObject **stack)
{
    return (FjMatcher){.structure = structure,
                       .registry = structure->registry,
                       .scratch = fj_scratch_of(stack),
                       .arrays = arrays,
                       .objects = objects,
                       .next = first};
}

int
fj_match_arguments(FjStructure *structure, FjKnownArguments **known,
                   PyObject *const *arguments, FjLeafBuf *arrays, FjLeafBuf *objects,
                   FjMatchAttempts *attempts)
{
    PyObject *stack[FJ_SCRATCH_INLINE];
    FjMatcher m = matcher_of(structure, structure->nodes + 1, arrays, objects, stack);
    m.attempts = attempts;
    if (!FJ_FREE_THREADED && *known == NULL) {
        *known = fj_known_new(structure);
    }
    if (structure->num_numbered > 0 &&
        (objects == NULL ||
         fj_leafbuf_reserve(objects, (Py_ssize_t)structure->num_numbered) < 0)) {
        return objects == NULL ? 0 : -1;
    }
#if FJ_FREE_THREADED
    /* Here it only remembers distinct objects.  While taken, it belongs to this call. */
    FjKnownArguments *taken = structure->num_numbered > 0 ? fj_exchange(known, NULL) : NULL;
    if (structure->num_numbered > 0 && taken == NULL) {
        taken = fj_known_new(structure);
    }
    int result = match_all(&m, arguments, structure->nodes[0].arity, taken);
    fj_known_free(taken == NULL ? NULL : fj_exchange(known, taken));
    return result;
#else
    return match_all(&m, arguments, structure->nodes[0].arity, *known);
#endif
}

int
fj_match_try(FjStructure *structure, FjKnownArguments *known, PyObject *const *arguments,
             FjMatchAttempts *attempts, FjLeafBuf *arrays, FjLeafBuf *objects)
{
    PyObject *stack[FJ_SCRATCH_INLINE];
    FjMatcher m = matcher_of(structure, structure->nodes + 1, arrays, objects, stack);
    Py_ssize_t before = arrays->count, count = structure->nodes[0].arity;
    Py_ssize_t num_objects = (Py_ssize_t)structure->num_numbered;
    int result = 1;
    m.is_try = 1;
    m.attempts = attempts;
    if (FJ_FREE_THREADED || structure->may_run_python ||
        (num_objects > 0 && objects == NULL)) {
        return 0;
    }
    if (num_objects > 0) { /* a REF needs the objects of the arguments before it */
        result = fj_leafbuf_reserve(objects, num_objects) < 0 ? -1 : 1;
    }
    else if (count > 1) {
        for (Py_ssize_t i = 0; i < attempts->failed; i++) {
            m.next = fj_structure_skip(structure, m.next);
        }
        result = match_argument(&m, arguments[attempts->failed], NULL);
        fj_leafbuf_truncate(arrays, before);
        m.next = structure->nodes + 1;
    }
    if (result > 0) {
        result = match_arguments(&m, arguments, count, known);
    }
    PyErr_Clear(); /* without memory, flattening fails too */
    return result > 0;
}

int
fj_match_tree(FjStructure *structure, PyObject *tree, FjLeafBuf *arrays)
{
    PyObject *stack[FJ_SCRATCH_INLINE];
    FjMatcher m = matcher_of(structure, structure->nodes, arrays, NULL, stack);
    return match_all(&m, &tree, 1, NULL);
}
