/* The walk of a cache hit: compares a tree with a Structure and collects the tree's arrays.
 *
 * It walks the nodes and the tree side by side, pushes each array it meets, and stops at the
 * first difference.  There are two kinds of walk:
 *
 *   python_free       runs no Python code and borrows references
 *                     (match_python_free.c).  Returns FJ_MATCH_NEEDS_PYTHON if an
 *                     object can't be compared without Python code.
 *   holds_references  can run Python code, and holds a reference to each object
 *                     it looks at: the walk of flatten.c (fj_flatten_compare).
 *
 * match_all starts with the python_free walk, unless the Structure has `may_run_python`.
 * After FJ_MATCH_NEEDS_PYTHON it starts over with the other walk.  Without a GIL, other
 * threads can change a tree at any time, and only the reference-holding walk is used:
 * compare.c does most of it.
 *
 * Numbered objects (Sharing in structure.h) are pushed too, before their children.  A REF
 * matches the object with its number, and all numbered objects must be distinct.
 *
 * Invariant: unless the result is FJ_MATCH_YES, the buffers keep their former sizes.
 *
 * Python code runs only in the reference-holding walk. */
#include "walk/match.h"

#include "walk/flatten.h"

/* Truncates the buffers after a failed walk. */
static void
take_back(FjMatcher *m, Py_ssize_t arrays_before)
{
    fj_leafbuf_truncate(m->arrays, arrays_before);
    if (m->objects != NULL) {
        fj_leafbuf_truncate(m->objects, 0);
    }
}

/* Also checks that the numbered objects are distinct. */
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
    /* Use nothing remembered from before Python code ran, except what this call owns. */
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
    /* Here it only remembers distinct objects.  While taken, it belongs to this call. */
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
