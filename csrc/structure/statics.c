/* The rule by which two static values share a compiled program.
 *
 * A frozen value is the value itself where nothing in it needs to be frozen; else a Frozen: a
 * tuple of its type, as which it counts, and its parts, frozen.  Parts are elements, pairs of
 * key and value, or what the `key` of its type or kind gives.  An identity is a Frozen of the
 * type Frozen and an object that is not looked into.
 *
 * Python code can run in a type's own __hash__ and __eq__, in the `key` of its type or kind,
 * and in classify() where a type is met for the first time.  The caller holds references to
 * both values; what frozen values are made of is held by these, which are immutable, so it
 * lives as long.
 */
#include "structure/statics.h"

#include "base/hash.h"
#include "structure/registry.h"

typedef enum {
    BY_IDENTITY,
    BY_VALUE, /* by ==, which is exact within the type */
    FLOAT,
    COMPLEX,
    TUPLE,
    SET,
    LIST,
    DICT,
    BY_TYPE /* by the key of its kind, or its own == */
} Rule;

/* The callable whose result stands for values of this type, borrowed; NULL where the registry
 * names none. */
static PyObject *
given_key(const FjRegistry *registry, const PyTypeObject *type)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(registry->keyed); i++) {
        PyObject *pair = PyTuple_GET_ITEM(registry->keyed, i);
        if (PyTuple_GET_ITEM(pair, 0) == (const PyObject *)type) {
            return PyTuple_GET_ITEM(pair, 1);
        }
    }
    return NULL;
}

/* How values of this type compare.  Subclasses that inherit hash and == follow their base. */
static Rule
rule_of(const FjRegistry *registry, PyTypeObject *type)
{
    if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBool_Type ||
        type == &PyBytes_Type || type == Py_TYPE(Py_None)) {
        return BY_VALUE;
    }
    if (FJ_UNLIKELY(registry->keyed != NULL) && given_key(registry, type) != NULL) {
        return BY_TYPE;
    }
    if (type->tp_hash == PyBaseObject_Type.tp_hash &&
        type->tp_richcompare == PyBaseObject_Type.tp_richcompare) {
        return BY_IDENTITY;
    }
    if (type->tp_richcompare == PyFloat_Type.tp_richcompare &&
        type->tp_hash == PyFloat_Type.tp_hash) {
        return FLOAT;
    }
    if (type->tp_richcompare == PyComplex_Type.tp_richcompare &&
        type->tp_hash == PyComplex_Type.tp_hash) {
        return COMPLEX;
    }
    if (type->tp_richcompare == PyTuple_Type.tp_richcompare &&
        type->tp_hash == PyTuple_Type.tp_hash) {
        return TUPLE;
    }
    if (type->tp_richcompare == PyFrozenSet_Type.tp_richcompare &&
        type->tp_hash == PyFrozenSet_Type.tp_hash) {
        return SET;
    }
    return type == &PyList_Type   ? LIST
           : type == &PyDict_Type ? DICT
           : type == &PySet_Type  ? SET
                                  : BY_TYPE;
}

int
fj_static_is_inert(FjRegistry *registry, PyObject *value)
{
    switch (rule_of(registry, Py_TYPE(value))) {
    case BY_IDENTITY:
    case BY_VALUE:
    case FLOAT:
    case COMPLEX:
        return 1;
    case TUPLE:
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            PyObject *item = PyTuple_GET_ITEM(value, i);
            /* One level: deeper ones are rare, and would need a before_raising_call against
             * depth. */
            Rule rule = rule_of(registry, Py_TYPE(item));
            if (rule > COMPLEX) {
                return 0;
            }
        }
        return 1;
    default:
        return 0;
    }
}

static Py_uhash_t
hash_double(Py_uhash_t hash, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return fj_hash_mix(hash, (Py_uhash_t)(bits ^ (bits >> 32)));
}

/* An int's own hash takes -1 for -2, and 0 for 2**61 - 1: one that was changed into the other
 * in a list must not go unseen.  0, or -1 with an error. */
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
    return memcmp(&a, &b, sizeof(a)) == 0; /* NOLINT: this is what is asked */
}

/* ---- freezing ---- */

static int
frozen_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return PyTuple_Type.tp_traverse(op, visit, arg);
}

static PyType_Slot frozen_slots[] = {
    {Py_tp_doc, "What a static was at one moment; private."},
    {Py_tp_traverse, frozen_traverse},
    {0, NULL},
};

PyType_Spec fj_frozen_spec = {
    .name = "filterjit._core.Frozen",
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = frozen_slots,
};

/* A Frozen with room for `count` parts. */
static PyObject *
new_frozen(FjState *state, PyObject *first, Py_ssize_t count)
{
    PyObject *frozen = state->frozen->tp_alloc(state->frozen, count + 1);
    if (frozen != NULL) {
        PyTuple_SET_ITEM(frozen, 0, Py_NewRef(first));
    }
    return frozen;
}

PyObject *
fj_static_identity(FjState *state, PyObject *value)
{
    PyObject *frozen = new_frozen(state, (PyObject *)state->frozen, 1);
    if (frozen != NULL) {
        PyTuple_SET_ITEM(frozen, 1, Py_NewRef(value));
    }
    return frozen;
}

/* Whether a Frozen stands for an object that is not looked into, its second item. */
static int
is_identity(const FjRegistry *registry, PyObject *frozen)
{
    return PyTuple_GET_ITEM(frozen, 0) == (PyObject *)registry->state->frozen;
}

/* What stands for a value whose type or kind has a `key`: 1 with a new reference, 0 when it
 * has none, -1 with an error. */
static int
key_of(FjRegistry *registry, PyObject *value, PyObject **key)
{
    PyObject *function = registry->keyed == NULL ? NULL : given_key(registry, Py_TYPE(value));
    Py_XINCREF(function);
    if (function == NULL) {
        FjNodeKind *kind = fj_registry_kind(registry, value);
        if (kind == NULL) {
            return -1;
        }
        function = kind->code == FJ_STATIC ? Py_XNewRef(kind->key) : NULL;
        Py_DECREF(kind);
    }
    if (function == NULL) {
        return 0;
    }
    *key = PyObject_CallOneArg(function, value);
    Py_DECREF(function);
    return *key == NULL ? -1 : 1;
}

static int
has_no_hash(PyObject *value)
{
    return Py_TYPE(value)->tp_hash == PyObject_HashNotImplemented;
}

/* A new reference to what stands for `value`, whose key this is, frozen. */
static PyObject *
freeze_key(FjRegistry *registry, PyObject *value, PyObject *key)
{
    if (Py_EnterRecursiveCall(" while looking at a static value")) {
        return NULL;
    }
    PyObject *part = fj_static_freeze(registry, key, 1);
    Py_LeaveRecursiveCall();
    PyObject *frozen =
        part == NULL ? NULL : new_frozen(registry->state, (PyObject *)Py_TYPE(value), 1);
    if (frozen == NULL) {
        Py_XDECREF(part);
        return NULL;
    }
    PyTuple_SET_ITEM(frozen, 1, part);
    return frozen;
}

static PyObject *
freeze_by_type(FjRegistry *registry, PyObject *value, int field)
{
    PyObject *key = NULL;
    int has_key = key_of(registry, value, &key);
    if (has_key <= 0) {
        return has_key < 0 ? NULL : Py_NewRef(value);
    }
    /* The value's own hash says whether it may be a leaf; what its key holds need not. */
    int hashable = field || PyObject_Hash(value) != -1;
    PyObject *frozen = hashable ? freeze_key(registry, value, key) : NULL;
    Py_DECREF(key);
    return frozen;
}

/* What a container holds now, as a new tuple: freezing an element may change it. */
static PyObject *
contents(PyObject *value, Rule rule)
{
    if (rule == TUPLE) {
        return Py_NewRef(value);
    }
    if (rule != DICT) {
        return PySequence_Tuple(value);
    }
    PyObject *items = PyDict_Items(value);
    PyObject *tuple = items == NULL ? NULL : PyList_AsTuple(items);
    Py_XDECREF(items);
    return tuple;
}

/* Itself, if it cannot change and each of its elements is frozen as it is. */
static PyObject *
freeze_elements(FjRegistry *registry, PyObject *value, Rule rule, int field)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    PyObject *items = contents(value, rule);
    if (items == NULL) {
        return NULL;
    }
    int mutable = rule == LIST || rule == DICT || PySet_CheckExact(value);
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    PyObject *frozen = mutable ? new_frozen(registry->state, type, count) : Py_NewRef(value);
    for (Py_ssize_t i = 0; frozen != NULL && i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        PyObject *part = fj_static_freeze(registry, item, field);
        if (part != NULL && part != item && frozen == value) {
            Py_SETREF(frozen, new_frozen(registry->state, type, count));
            for (Py_ssize_t k = 0; frozen != NULL && k < i; k++) {
                PyTuple_SET_ITEM(frozen, k + 1, Py_NewRef(PyTuple_GET_ITEM(items, k)));
            }
        }
        if (part == NULL || frozen == NULL) {
            Py_CLEAR(frozen);
            Py_XDECREF(part);
        }
        else if (frozen == value) {
            Py_DECREF(part);
        }
        else {
            PyTuple_SET_ITEM(frozen, i + 1, part);
        }
    }
    Py_DECREF(items);
    return frozen;
}

PyObject *
fj_static_freeze(FjRegistry *registry, PyObject *value, int field)
{
    Rule rule = rule_of(registry, Py_TYPE(value));
    if (rule <= COMPLEX || Py_TYPE(value) == registry->state->frozen) {
        return Py_NewRef(value);
    }
    if (!field && (rule == LIST || rule == DICT || has_no_hash(value))) {
        (void)PyObject_Hash(value); /* raises */
        return NULL;
    }
    if (rule == BY_TYPE) {
        return freeze_by_type(registry, value, field);
    }
    if (Py_EnterRecursiveCall(" while looking at a static value")) {
        return NULL;
    }
    PyObject *frozen = freeze_elements(registry, value, rule, field);
    Py_LeaveRecursiveCall();
    return frozen;
}

/* ---- hash and equality of frozen values ---- */

/* Whether the parts of a Frozen come in no order. */
static int
is_set(PyObject *frozen)
{
    PyObject *type = PyTuple_GET_ITEM(frozen, 0);
    return PyType_Check(type) && (PyType_IsSubtype((PyTypeObject *)type, &PySet_Type) ||
                                  PyType_IsSubtype((PyTypeObject *)type, &PyFrozenSet_Type));
}

static int
hash_frozen(FjRegistry *registry, PyObject *frozen, Py_uhash_t *hash)
{
    int ordered = !is_set(frozen);
    Py_uhash_t sum = 0;
    if (is_identity(registry, frozen)) {
        *hash = fj_hash_mix(*hash, fj_hash_address(PyTuple_GET_ITEM(frozen, 1)));
        return 0;
    }
    *hash = fj_hash_mix(*hash, fj_hash_address(PyTuple_GET_ITEM(frozen, 0)));
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(frozen); i++) {
        Py_hash_t part;
        if (fj_static_hash(registry, PyTuple_GET_ITEM(frozen, i), &part) < 0) {
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

/* Folds in the elements of a tuple or frozenset that is frozen as it is. */
static int
hash_elements(FjRegistry *registry, PyObject *value, Rule rule, Py_uhash_t *hash)
{
    Py_uhash_t sum = 0;
    PyObject *items = contents(value, rule);
    if (items == NULL) {
        return -1;
    }
    int result = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items) && result == 0; i++) {
        Py_hash_t part;
        result = fj_static_hash(registry, PyTuple_GET_ITEM(items, i), &part);
        if (rule == TUPLE) {
            *hash = fj_hash_mix(*hash, (Py_uhash_t)part);
        }
        else {
            sum += fj_hash_mix(0, (Py_uhash_t)part);
        }
    }
    *hash = rule == TUPLE ? *hash : fj_hash_mix(*hash, sum);
    Py_DECREF(items);
    return result;
}

/* 0, or -1 with an error. */
static int
hash_by_type(PyObject *value, Py_uhash_t *hash)
{
    Py_hash_t own =
        has_no_hash(value) ? (Py_hash_t)fj_hash_address(value) : PyObject_Hash(value);
    *hash = fj_hash_mix(*hash, (Py_uhash_t)own);
    return own == -1 ? -1 : 0;
}

static int
hash_compound(FjRegistry *registry, PyObject *value, Rule rule, Py_uhash_t *hash)
{
    if (Py_EnterRecursiveCall(" while hashing a static value")) {
        return -1;
    }
    int result = Py_TYPE(value) == registry->state->frozen
                     ? hash_frozen(registry, value, hash)
                     : hash_elements(registry, value, rule, hash);
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_static_hash(FjRegistry *registry, PyObject *value, Py_hash_t *result)
{
    PyTypeObject *type = Py_TYPE(value);
    Py_uhash_t hash = fj_hash_mix(0, fj_hash_address(type));
    Rule rule = rule_of(registry, type);
    *result = 0;
    switch (rule) {
    case FLOAT:
        hash = hash_double(hash, PyFloat_AS_DOUBLE(value));
        break;
    case COMPLEX: {
        Py_complex number = ((PyComplexObject *)value)->cval;
        hash = hash_double(hash_double(hash, number.real), number.imag);
        break;
    }
    case TUPLE:
    case SET:
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

/* Two sets are the same when each element of `a` has its own, exactly equal, in `b`: both
 * tuples of elements, from `first` on. */
static int
equal_sets(FjRegistry *registry, PyObject *a, PyObject *b, Py_ssize_t first)
{
    int same = 1;
    PyObject *rest = PySequence_List(b);
    if (rest == NULL) {
        return -1;
    }
    for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(a) && same > 0; i++) {
        /* Sets that were made alike iterate alike: the partner is mostly the first. */
        Py_ssize_t k = first;
        same = 0;
        for (; k < PyList_GET_SIZE(rest) && same == 0; k++) {
            same = fj_static_equal(registry, PyTuple_GET_ITEM(a, i), PyList_GET_ITEM(rest, k));
        }
        if (same > 0 && PyList_SetSlice(rest, k - 1, k, NULL) < 0) {
            same = -1;
        }
    }
    Py_DECREF(rest);
    return same;
}

/* Two tuples of elements, in order. */
static int
equal_sequences(FjRegistry *registry, PyObject *a, PyObject *b, Py_ssize_t first)
{
    int same = 1;
    for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(a) && same > 0; i++) {
        same = fj_static_equal(registry, PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
    }
    return same;
}

/* Two tuples, two frozensets, or two Frozen. */
static int
equal_elements(FjRegistry *registry, PyObject *a, PyObject *b, Rule rule)
{
    int frozen = Py_TYPE(a) == registry->state->frozen;
    if (frozen && PyTuple_GET_ITEM(a, 0) != PyTuple_GET_ITEM(b, 0)) {
        return 0;
    }
    if (frozen && is_identity(registry, a)) {
        return is_identity(registry, b) && PyTuple_GET_ITEM(a, 1) == PyTuple_GET_ITEM(b, 1);
    }
    PyObject *x = contents(a, rule);
    PyObject *y = x == NULL ? NULL : contents(b, rule); /* may run Python code */
    int result = y == NULL ? -1 : PyTuple_GET_SIZE(x) == PyTuple_GET_SIZE(y);
    if (result > 0) {
        result = rule == SET || (frozen && is_set(a))
                     ? equal_sets(registry, x, y, frozen)
                     : equal_sequences(registry, x, y, frozen);
    }
    Py_XDECREF(x);
    Py_XDECREF(y);
    return result;
}

static int
equal_compound(FjRegistry *registry, PyObject *a, PyObject *b, Rule rule)
{
    if (Py_EnterRecursiveCall(" while comparing static values")) {
        return -1;
    }
    int result = equal_elements(registry, a, b, rule);
    Py_LeaveRecursiveCall();
    return result;
}

/* By their own ==; without a hash, by identity. */
static int
equal_by_type(PyObject *a, PyObject *b)
{
    if (has_no_hash(a)) {
        return 0;
    }
    PyObject *answer = PyObject_RichCompare(a, b, Py_EQ);
    if (answer == NULL) {
        return -1;
    }
    int result = PyObject_IsTrue(answer);
    Py_DECREF(answer);
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
    Rule rule = rule_of(registry, type);
    switch (rule) {
    case BY_IDENTITY:
        return 0;
    case FLOAT:
        return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    case COMPLEX: {
        Py_complex x = ((PyComplexObject *)a)->cval, y = ((PyComplexObject *)b)->cval;
        return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
    }
    case TUPLE:
    case SET:
        return equal_compound(registry, a, b, rule);
    case BY_VALUE:
        return PyObject_RichCompareBool(a, b, Py_EQ);
    default:
        return equal_by_type(a, b);
    }
}

int
fj_static_equal_now(FjRegistry *registry, PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    PyObject *x = fj_static_freeze(registry, a, 1);
    PyObject *y = x == NULL ? NULL : fj_static_freeze(registry, b, 1);
    int same = y == NULL ? -1 : fj_static_equal(registry, x, y);
    Py_XDECREF(x);
    Py_XDECREF(y);
    return same;
}
