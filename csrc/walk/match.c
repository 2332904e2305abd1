/* The walk of a cache hit: compares a tree with a Structure and collects the tree's arrays.
 *
 * It goes through the nodes of the Structure and through the tree side by side, pushes each
 * array when it meets it, and stops at the first difference.  There are two kinds of walk:
 *
 * python_free       The walk runs no Python code, so it borrows references
 *                   (match_python_free.c).  An object that cannot be compared without Python
 *                   code ends it with FJ_MATCH_NEEDS_PYTHON.
 * holds_references  The walk may run Python code, so it holds a reference to each object that
 *                   it looks at: it is that of flatten.c (fj_flatten_compare).
 *
 * match_all starts with the python_free walk unless `may_run_python`.  After
 * FJ_MATCH_NEEDS_PYTHON it starts over with the other one.  Without a GIL, other threads may
 * change a tree at any time, and there is only the walk that holds what it looks at: compare.c
 * does most of it.
 *
 * A numbered object (Sharing in structure.h) is pushed as well, before its children.  A REF
 * matches the object of its number, and no two numbered objects may be one.
 *
 * Invariant: unless the result is FJ_MATCH_YES, the buffers are truncated to their former
 * sizes.
 *
 * Python code runs in the walk that holds references, and nowhere else.
 */
#include "walk/match.h"

#include "walk/flatten.h"

/* Empties the buffers again after a walk that has found a difference. */
static void
take_back(FjMatcher *m, Py_ssize_t arrays_before)
{
    fj_leafbuf_truncate(m->arrays, arrays_before);
    if (m->objects != NULL) {
        fj_leafbuf_truncate(m->objects, 0);
    }
}

/* The result of a walk: whether the numbered objects that it has pushed are distinct, too. */
static inline int
end_walk(FjMatcher *m, int result, Py_ssize_t arrays_before, FjKnownArguments *known)
{
    if (result == FJ_MATCH_YES && m->structure->num_identities > 0) {
        result = fj_known_are_distinct(known, m->objects->items, m->objects->count);
    }
    if (FJ_UNLIKELY(result != FJ_MATCH_YES)) {
        take_back(m, arrays_before);
    }
    return result;
}

static FjMatch
match_all(FjMatcher *m, PyObject *const *objects, Py_ssize_t count, FjKnownArguments *known)
{
    Py_ssize_t before = m->arrays->count;
    const FjNode *first = m->next;
    if (!FJ_FREE_THREADED && !m->structure->may_run_python) {
        int result =
            end_walk(m, fj_match_python_free(m, objects, count, known), before, known);
        if (FJ_LIKELY(result != FJ_MATCH_NEEDS_PYTHON)) {
            return (FjMatch)result;
        }
    }
    if (m->structure->is_asked) {
        return FJ_MATCH_NO;
    }
    /* What was learned before Python code runs is nothing to rely on, if it is not taken. */
    return (FjMatch)end_walk(
        m, fj_flatten_compare(m->structure, first, objects, count, m->arrays, m->objects),
        before, FJ_FREE_THREADED ? known : NULL);
}

FjMatch
fj_match_arguments(FjStructure *structure, FjKnownArguments **known,
                   PyObject *const *arguments, FjLeafBuf *arrays, FjLeafBuf *objects)
{
    FjMatcher m = {.structure = structure,
                   .registry = structure->registry,
                   .arrays = arrays,
                   .objects = objects,
                   .next = structure->nodes + 1};
    if (!FJ_FREE_THREADED && *known == NULL) {
        *known = fj_known_new(structure);
    }
    if (structure->num_identities > 0 &&
        fj_leafbuf_reserve(objects, (Py_ssize_t)structure->num_identities) < 0) {
        return FJ_MATCH_ERROR;
    }
#if FJ_FREE_THREADED
    /* Only which objects are distinct is known here.  While it is taken, it is this call's. */
    FjKnownArguments *taken = structure->num_identities > 0 ? fj_exchange(known, NULL) : NULL;
    if (structure->num_identities > 0 && taken == NULL) {
        taken = fj_known_new(structure);
    }
    FjMatch result = match_all(&m, arguments, structure->nodes[0].arity, taken);
    fj_known_free(taken == NULL ? NULL : fj_exchange(known, taken));
    return result;
#else
    return match_all(&m, arguments, structure->nodes[0].arity, *known);
#endif
}

FjMatch
fj_match_tree(FjStructure *structure, PyObject *tree, FjLeafBuf *arrays)
{
    FjMatcher m = {.structure = structure,
                   .registry = structure->registry,
                   .arrays = arrays,
                   .next = structure->nodes};
    return match_all(&m, &tree, 1, NULL);
}
