/* The rule by which two static values share a compiled program.
 *
 * Python code can run in a type's own __hash__ and __eq__, in the `key` of its kind, and in
 * classify() where a type is met for the first time.  The caller holds references to both
 * values; elements of tuples and frozensets are held by these, which are immutable, so they
 * live as long.
 */
#include "statics.h"

#include "nodekind.h"

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

/* How values of this type compare.  Subclasses that inherit hash and == follow their base. */
static Rule
rule_of(PyTypeObject *type)
{
    if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBool_Type ||
        type == &PyBytes_Type || type == Py_TYPE(Py_None)) {
        return BY_VALUE;
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
fj_static_is_inert(PyObject *value)
{
    switch (rule_of(Py_TYPE(value))) {
    case BY_IDENTITY:
    case BY_VALUE:
    case FLOAT:
    case COMPLEX:
        return 1;
    case TUPLE:
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            PyObject *item = PyTuple_GET_ITEM(value, i);
            /* One level: deeper ones are rare, and would need a guard against depth. */
            Rule rule = rule_of(Py_TYPE(item));
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
    return memcmp(&a, &b, sizeof(a)) == 0;
}

/* What stands for a value whose kind has a `key`: 1 with a new reference, 0 when it has
 * none, -1 with an error. */
static int
key_of(FjRegistry *registry, PyObject *value, PyObject **key)
{
    FjNodeKind *kind = fj_registry_kind(registry, value);
    if (kind == NULL) {
        return -1;
    }
    int has_key = kind->code == FJ_STATIC && kind->key != NULL;
    if (has_key) {
        *key = PyObject_CallOneArg(kind->key, value);
    }
    Py_DECREF(kind);
    return !has_key ? 0 : *key == NULL ? -1 : 1;
}

static int
has_no_hash(PyObject *value)
{
    return Py_TYPE(value)->tp_hash == PyObject_HashNotImplemented;
}

static int
hash_by_type(FjRegistry *registry, PyObject *value, int field, Py_hash_t *hash)
{
    if (has_no_hash(value) && !field) {
        *hash = PyObject_Hash(value); /* raises */
        return -1;
    }
    PyObject *key = NULL;
    int has_key = key_of(registry, value, &key);
    if (has_key < 0) {
        return -1;
    }
    if (has_key) {
        /* The value's own hash says whether it may be a leaf; what its key holds need not. */
        int result =
            !field && PyObject_Hash(value) == -1 ? -1 : fj_static_hash(registry, key, 1, hash);
        Py_DECREF(key);
        return result;
    }
    if (has_no_hash(value)) {
        *hash = (Py_hash_t)((uintptr_t)value >> 4);
        return 0;
    }
    *hash = PyObject_Hash(value);
    return *hash == -1 ? -1 : 0;
}

/* Folds in the hashes of what `values` yields, in order or without one. */
static int
hash_iterable(FjRegistry *registry, PyObject *values, int ordered, int field, Py_uhash_t *hash)
{
    Py_uhash_t sum = 0;
    PyObject *iterator = PyObject_GetIter(values);
    PyObject *item = NULL;
    while (iterator != NULL && (item = PyIter_Next(iterator)) != NULL) {
        Py_hash_t element;
        int failed = fj_static_hash(registry, item, field, &element);
        Py_DECREF(item);
        if (failed < 0) {
            break;
        }
        if (ordered) {
            *hash = fj_hash_mix(*hash, (Py_uhash_t)element);
        }
        else {
            sum += fj_hash_mix(0, (Py_uhash_t)element);
        }
    }
    Py_XDECREF(iterator);
    *hash = ordered ? *hash : fj_hash_mix(*hash, sum);
    return PyErr_Occurred() ? -1 : 0;
}

static int
hash_elements(FjRegistry *registry, PyObject *value, Rule rule, int field, Py_uhash_t *hash)
{
    if ((rule == LIST || rule == DICT || PySet_CheckExact(value)) && !field) {
        (void)PyObject_Hash(value); /* raises */
        return -1;
    }
    if (Py_EnterRecursiveCall(" while hashing a static value")) {
        return -1;
    }
    int result = -1;
    /* A copy: hashing an element may change a list or a dict. */
    PyObject *values = rule == LIST   ? PyList_AsTuple(value)
                       : rule == DICT ? PyDict_Items(value)
                                      : Py_NewRef(value);
    if (values != NULL) {
        result = hash_iterable(registry, values, rule != SET, field, hash);
        Py_DECREF(values);
    }
    Py_LeaveRecursiveCall();
    return result;
}

int
fj_static_hash(FjRegistry *registry, PyObject *value, int field, Py_hash_t *result)
{
    PyTypeObject *type = Py_TYPE(value);
    Py_uhash_t hash = fj_hash_mix(0, (Py_uhash_t)((uintptr_t)type >> 4));
    Py_hash_t own;
    Rule rule = rule_of(type);
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
    case LIST:
    case DICT:
        if (hash_elements(registry, value, rule, field, &hash) < 0) {
            return -1;
        }
        break;
    case BY_TYPE:
        if (hash_by_type(registry, value, field, &own) < 0) {
            return -1;
        }
        hash = fj_hash_mix(hash, (Py_uhash_t)own);
        break;
    default:
        if (type == &PyLong_Type) {
            if (hash_int(value, &hash) < 0) {
                return -1;
            }
            break;
        }
        own = PyObject_Hash(value);
        if (own == -1) {
            return -1;
        }
        hash = fj_hash_mix(hash, (Py_uhash_t)own);
    }
    *result = hash == (Py_uhash_t)-1 ? -2 : (Py_hash_t)hash;
    return 0;
}

/* Two sets are the same when each element of `a` has its own, exactly equal, in `b`. */
static int
equal_sets(FjRegistry *registry, PyObject *a, PyObject *b)
{
    if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) {
        return 0;
    }
    int same = -1;
    PyObject *left = PySequence_List(a);
    PyObject *rest = left == NULL ? NULL : PySequence_List(b);
    if (rest == NULL) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(left); i++) {
        /* Sets that were made alike iterate alike: the partner is mostly the first. */
        Py_ssize_t k = 0;
        same = 0;
        for (; k < PyList_GET_SIZE(rest) && same == 0; k++) {
            same =
                fj_static_equal(registry, PyList_GET_ITEM(left, i), PyList_GET_ITEM(rest, k));
        }
        if (same <= 0 || PyList_SetSlice(rest, k - 1, k, NULL) < 0) {
            same = same > 0 ? -1 : same;
            goto done;
        }
    }
    same = 1;
done:
    Py_XDECREF(left);
    Py_XDECREF(rest);
    return same;
}

/* Two tuples, lists of elements, or lists of a dict's items: in order. */
static int
equal_sequences(FjRegistry *registry, PyObject *a, PyObject *b)
{
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) {
        return 0;
    }
    int same = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a) && same > 0; i++) {
        same = fj_static_equal(registry, PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
    }
    return same;
}

/* What a list or a dict holds now, as a new tuple: comparing an element may change it. */
static PyObject *
contents(PyObject *value, Rule rule)
{
    if (rule == LIST) {
        return PyList_AsTuple(value);
    }
    PyObject *items = PyDict_Items(value);
    PyObject *tuple = items == NULL ? NULL : PyList_AsTuple(items);
    Py_XDECREF(items);
    return tuple;
}

static int
equal_elements(FjRegistry *registry, PyObject *a, PyObject *b, Rule rule)
{
    if (Py_EnterRecursiveCall(" while comparing static values")) {
        return -1;
    }
    int result = -1;
    if (rule == SET) {
        result = equal_sets(registry, a, b);
    }
    else if (rule == TUPLE) {
        result = equal_sequences(registry, a, b);
    }
    else {
        PyObject *x = contents(a, rule);
        PyObject *y = x == NULL ? NULL : contents(b, rule);
        if (y != NULL) {
            result = equal_sequences(registry, x, y);
        }
        Py_XDECREF(x);
        Py_XDECREF(y);
    }
    Py_LeaveRecursiveCall();
    return result;
}

static int
equal_by_type(FjRegistry *registry, PyObject *a, PyObject *b)
{
    PyObject *key_a = NULL;
    PyObject *key_b = NULL;
    int result = key_of(registry, a, &key_a);
    if (result > 0) {
        result = key_of(registry, b, &key_b);
        if (result > 0) {
            result = fj_static_equal(registry, key_a, key_b);
        }
        Py_DECREF(key_a);
        Py_XDECREF(key_b);
        return result;
    }
    if (result < 0 || has_no_hash(a)) {
        return result; /* without a hash: by identity */
    }
    PyObject *answer = PyObject_RichCompare(a, b, Py_EQ);
    if (answer == NULL) {
        return -1;
    }
    result = PyObject_IsTrue(answer);
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
    Rule rule = rule_of(type);
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
    case LIST:
    case DICT:
        return equal_elements(registry, a, b, rule);
    case BY_TYPE:
        return equal_by_type(registry, a, b);
    default:
        return PyObject_RichCompareBool(a, b, Py_EQ);
    }
}
