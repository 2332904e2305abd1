/* Hashing and comparing static values; statics.h has the rule.
 *
 * Python code can run in the __hash__ and __eq__ of values, and in classify() for a type that
 * the Registry has no kind for.  The caller holds references to the values that are hashed or
 * compared.
 */
#include "structure/statics.h"

#include "base/hash.h"
#include "structure/static_rule.h"

/* Whether all items of a tuple are inert.  A tuple in a tuple counts as not inert: it is rare,
 * and following it would need a recursion check, which can raise. */
static int
has_inert_items(FjRegistry *registry, PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (!fj_static_rule_is_inert(
                fj_static_rule(registry, Py_TYPE(PyTuple_GET_ITEM(tuple, i))))) {
            return 0;
        }
    }
    return 1;
}

int
fj_static_is_inert(FjRegistry *registry, PyObject *value)
{
    switch (fj_static_rule(registry, Py_TYPE(value))) {
    case FJ_BY_IDENTITY:
    case FJ_BY_VALUE:
    case FJ_FLOAT_BITS:
    case FJ_COMPLEX_BITS:
        return 1;
    case FJ_TUPLE_ITEMS:
        return has_inert_items(registry, value);
    default:
        return 0;
    }
}

int
fj_static_has_empty_dict(FjRegistry *registry, PyObject *value)
{
    const PyTypeObject *type = Py_TYPE(value);
    /* A subclass of tuple cannot have slots: all that it can add is a __dict__. */
    if (!PyTuple_Check(value) || !fj_static_compares_like(type, &PyTuple_Type) ||
        fj_static_registered_key(registry, type) != NULL) {
        return 0;
    }
    PyObject **dict = _PyObject_GetDictPtr(value);
    return dict != NULL && (*dict == NULL || PyDict_GET_SIZE(*dict) == 0) &&
           has_inert_items(registry, value);
}

int
fj_static_is_immutable(FjRegistry *registry, PyObject *value)
{
    if (fj_static_is_inert(registry, value)) {
        return 1;
    }
    if (fj_static_rule(registry, Py_TYPE(value)) != FJ_BY_TYPE ||
        fj_static_registered_key(registry, Py_TYPE(value)) != NULL) {
        return 0;
    }
    FjNodeKind *kind = fj_registry_kind(registry, value);
    if (kind == NULL) {
        return -1;
    }
    PyObject *immutable = kind->immutable;
    int result = immutable == NULL      ? 0
                 : immutable == Py_True ? 1
                                        : fj_take_truth(PyObject_CallOneArg(immutable, value));
    Py_DECREF(kind);
    return result;
}

static Py_uhash_t
hash_double(Py_uhash_t hash, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return fj_hash_mix(hash, (Py_uhash_t)(bits ^ (bits >> 32)));
}

/* Mixes the hash of an int into `hash`.  0, or -1 with an error.
 *
 * Python's hash is not used because hash(-1) == hash(-2) and hash(0) == hash(2**61 - 1). */
static int
hash_int(PyObject *value, Py_uhash_t *hash)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) {
        *hash = fj_hash_mix(*hash, (Py_uhash_t)number);
        return 0;
    }
    PyObject *digits = PyNumber_ToBase(value, 16);
    Py_hash_t own = digits == NULL ? -1 : PyObject_Hash(digits);
    Py_XDECREF(digits);
    *hash = fj_hash_mix(*hash, (Py_uhash_t)own);
    return own == -1 ? -1 : 0;
}

static int
same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0; /* NOLINT: 0.0 and -0.0 differ */
}

/* ---- snapshots ---- */

/* Whether a Snapshot is that of a set, so that the order of its parts does not count. */
static int
is_set(PyObject *snapshot)
{
    PyObject *type = PyTuple_GET_ITEM(snapshot, 0);
    return PyType_Check(type) && (PyType_IsSubtype((PyTypeObject *)type, &PySet_Type) ||
                                  PyType_IsSubtype((PyTypeObject *)type, &PyFrozenSet_Type));
}

/* Mixes the hashes of the items of a tuple, from `first` on, into `hash`.  0, or -1 with an
 * error. */
static int
hash_items(FjRegistry *registry, PyObject *items, Py_ssize_t first, int ordered,
           Py_uhash_t *hash)
{
    Py_uhash_t sum = 0;
    for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(items); i++) {
        Py_hash_t part;
        if (fj_static_hash(registry, PyTuple_GET_ITEM(items, i), &part) < 0) {
            return -1;
        }
        if (ordered) {
            *hash = fj_hash_mix(*hash, (Py_uhash_t)part);
        }
        else {
            sum += fj_hash_mix(0, (Py_uhash_t)part);
        }
    }
    *hash = ordered ? *hash : fj_hash_mix(*hash, sum);
    return 0;
}

static int
hash_snapshot(FjRegistry *registry, PyObject *snapshot, Py_uhash_t *hash)
{
    if (fj_static_is_identity(registry, snapshot)) {
        *hash = fj_hash_mix(*hash, fj_hash_address(PyTuple_GET_ITEM(snapshot, 1)));
        return 0;
    }
    *hash = fj_hash_mix(*hash, fj_hash_address(PyTuple_GET_ITEM(snapshot, 0)));
    return hash_items(registry, snapshot, 1, !is_set(snapshot), hash);
}

/* For a tuple or frozenset that is its own snapshot. */
static int
hash_elements(FjRegistry *registry, PyObject *value, FjStaticRule rule, Py_uhash_t *hash)
{
    PyObject *items = fj_static_elements(value, rule);
    if (items == NULL) {
        return -1;
    }
    int result = hash_items(registry, items, 0, rule == FJ_TUPLE_ITEMS, hash);
    Py_DECREF(items);
    return result;
}

static int
hash_by_type(PyObject *value, Py_uhash_t *hash)
{
    Py_hash_t own = PyObject_Hash(value);
    *hash = fj_hash_mix(*hash, (Py_uhash_t)own);
    return own == -1 ? -1 : 0;
}

static int
hash_compound(FjRegistry *registry, PyObject *value, FjStaticRule rule, Py_uhash_t *hash)
{
    if (Py_EnterRecursiveCall(" while hashing a static value")) {
        return -1;
    }
    int result = Py_TYPE(value) == registry->state->snapshot
                     ? hash_snapshot(registry, value, hash)
                     : hash_elements(registry, value, rule, hash);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_static_hash(FjRegistry *registry, PyObject *value, Py_hash_t *result)
{
    PyTypeObject *type = Py_TYPE(value);
    Py_uhash_t hash = fj_hash_mix(0, fj_hash_address(type));
    FjStaticRule rule = fj_static_rule(registry, type);
    *result = 0;
    switch (rule) {
    case FJ_FLOAT_BITS:
        hash = hash_double(hash, PyFloat_AS_DOUBLE(value));
        break;
    case FJ_COMPLEX_BITS: {
        Py_complex number = ((PyComplexObject *)value)->cval;
        hash = hash_double(hash_double(hash, number.real), number.imag);
        break;
    }
    case FJ_TUPLE_ITEMS:
    case FJ_SET_ITEMS:
        if (hash_compound(registry, value, rule, &hash) < 0) {
            return -1;
        }
        break;
    default:
        if ((type == &PyLong_Type ? hash_int(value, &hash) : hash_by_type(value, &hash)) < 0) {
            return -1;
        }
    }
    *result = fj_hash_finish(hash);
    return 0;
}

/* An item of a set, borrowed, and its hash. */
typedef struct {
    Py_hash_t hash;
    PyObject *item; /* NULL: paired */
} SetItem;

static int
compare_hashes(const void *a, const void *b)
{
    Py_hash_t x = ((const SetItem *)a)->hash, y = ((const SetItem *)b)->hash;
    return (x > y) - (x < y);
}

/* The items of a tuple, from `first` on, in the order of their hashes: an array for
 * PyMem_Free, or NULL with an error. */
static SetItem *
by_hash(FjRegistry *registry, PyObject *items, Py_ssize_t first)
{
    Py_ssize_t count = PyTuple_GET_SIZE(items) - first;
    SetItem *sorted = PyMem_New(SetItem, count + 1);
    if (sorted == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        sorted[i].item = PyTuple_GET_ITEM(items, first + i);
        if (fj_static_hash(registry, sorted[i].item, &sorted[i].hash) < 0) {
            PyMem_Free(sorted);
            return NULL;
        }
    }
    qsort(sorted, (size_t)count, sizeof(SetItem), compare_hashes);
    return sorted;
}

/* Whether each item of `a` can be paired with an equal item of `b`.  Both arrays are sorted.
 */
static int
pair_items(FjRegistry *registry, const SetItem *a, SetItem *b, Py_ssize_t count)
{
    Py_ssize_t start = 0; /* of the items of `b` with the hash of a[i] */
    for (Py_ssize_t i = 0; i < count; i++) {
        if (a[i].hash != b[i].hash) {
            return 0;
        }
        start = i > 0 && a[i].hash == a[i - 1].hash ? start : i;
        int same = 0;
        for (Py_ssize_t k = start; k < count && b[k].hash == a[i].hash && same == 0; k++) {
            if (b[k].item != NULL) {
                same = fj_static_equal(registry, a[i].item, b[k].item);
                b[k].item = same > 0 ? NULL : b[k].item;
            }
        }
        if (same <= 0) {
            return same;
        }
    }
    return 1;
}

/* Whether each item of `a` can be paired with an equal item of `b`.  Both are tuples of the
 * same size, whose items before `first` are left out. */
static int
equal_sets(FjRegistry *registry, PyObject *a, PyObject *b, Py_ssize_t first)
{
    Py_ssize_t count = PyTuple_GET_SIZE(a);
    /* Equal sets often iterate in the same order. */
    while (first < count && PyTuple_GET_ITEM(a, first) == PyTuple_GET_ITEM(b, first)) {
        first++;
    }
    if (first == count) {
        return 1;
    }
    SetItem *x = by_hash(registry, a, first);
    SetItem *y = x == NULL ? NULL : by_hash(registry, b, first);
    int same = y == NULL ? -1 : pair_items(registry, x, y, count - first);
    PyMem_Free(x);
    PyMem_Free(y);
    return same;
}

/* The same, with the items in order. */
static int
equal_sequences(FjRegistry *registry, PyObject *a, PyObject *b, Py_ssize_t first)
{
    int same = 1;
    for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(a) && same > 0; i++) {
        same = fj_static_equal(registry, PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
    }
    return same;
}

/* Whether two tuples, two frozensets or two Snapshots are equal. */
static int
equal_elements(FjRegistry *registry, PyObject *a, PyObject *b, FjStaticRule rule)
{
    int is_snapshot = Py_TYPE(a) == registry->state->snapshot;
    if (is_snapshot && PyTuple_GET_ITEM(a, 0) != PyTuple_GET_ITEM(b, 0)) {
        return 0;
    }
    if (is_snapshot && fj_static_is_identity(registry, a)) {
        return fj_static_is_identity(registry, b) &&
               PyTuple_GET_ITEM(a, 1) == PyTuple_GET_ITEM(b, 1);
    }
    PyObject *x = fj_static_elements(a, rule);
    PyObject *y = x == NULL ? NULL : fj_static_elements(b, rule); /* may run Python code */
    int result = y == NULL ? -1 : PyTuple_GET_SIZE(x) == PyTuple_GET_SIZE(y);
    if (result > 0) {
        result = rule == FJ_SET_ITEMS || (is_snapshot && is_set(a))
                     ? equal_sets(registry, x, y, is_snapshot)
                     : equal_sequences(registry, x, y, is_snapshot);
    }
    Py_XDECREF(x);
    Py_XDECREF(y);
    return result;
}

static int
equal_compound(FjRegistry *registry, PyObject *a, PyObject *b, FjStaticRule rule)
{
    if (Py_EnterRecursiveCall(" while comparing static values")) {
        return -1;
    }
    int result = equal_elements(registry, a, b, rule);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_static_equal(FjRegistry *registry, PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    PyTypeObject *type = Py_TYPE(a);
    if (type != Py_TYPE(b)) {
        return 0;
    }
    FjStaticRule rule = fj_static_rule(registry, type);
    switch (rule) {
    case FJ_BY_IDENTITY:
        return 0;
    case FJ_FLOAT_BITS:
        return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    case FJ_COMPLEX_BITS: {
        Py_complex x = ((PyComplexObject *)a)->cval, y = ((PyComplexObject *)b)->cval;
        return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
    }
    case FJ_TUPLE_ITEMS:
    case FJ_SET_ITEMS:
        return equal_compound(registry, a, b, rule);
    case FJ_BY_VALUE:
        return PyObject_RichCompareBool(a, b, Py_EQ);
    default:
        return fj_take_truth(PyObject_RichCompare(a, b, Py_EQ));
    }
}
