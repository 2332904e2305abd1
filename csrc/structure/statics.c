/* Recognizes, hashes and compares inert values (statics.h).
 *
 * Python code can run in fj_static_is_fixed: classify and the `fixed` of a kind. */
#include "structure/statics.h"

#include "base/hash.h"

PyObject *
fj_static_registered_key(const FjRegistry *registry, const PyTypeObject *type)
{
    if (FJ_LIKELY(registry->keyed == NULL)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(registry->keyed); i++) {
        PyObject *pair = PyTuple_GET_ITEM(registry->keyed, i);
        if (PyTuple_GET_ITEM(pair, 0) == (const PyObject *)type) {
            return PyTuple_GET_ITEM(pair, 1);
        }
    }
    return NULL;
}

/* True if `type` inherits the __eq__ and __hash__ of `base`. */
static inline int
compares_like(const PyTypeObject *type, const PyTypeObject *base)
{
    return type->tp_richcompare == base->tp_richcompare && type->tp_hash == base->tp_hash;
}

/* True if `type` is `base` or a subclass that adds no __eq__ and no attributes.  A final type
 * is written in C and can hold more than its size shows, as struct sequences do before 3.13:
 * time.struct_time is a tuple of nine items with two more behind them. */
static inline int
is_like(const PyTypeObject *type, const PyTypeObject *base)
{
    return compares_like(type, base) && type->tp_dictoffset == base->tp_dictoffset &&
           type->tp_basicsize == base->tp_basicsize &&
           (type == base || (type->tp_flags & Py_TPFLAGS_BASETYPE));
}

/* For other types than those of FJ_BY_VALUE.  FJ_TUPLE_ITEMS for all tuples. */
static inline FjStaticRule
rule_of_type(const FjRegistry *registry, PyTypeObject *type)
{
    if (fj_static_registered_key(registry, type) != NULL) {
        return FJ_BY_REGISTERED_KEY;
    }
    return compares_like(type, &PyBaseObject_Type) ? FJ_BY_IDENTITY
           : is_like(type, &PyFloat_Type)          ? FJ_FLOAT_BITS
           : is_like(type, &PyComplex_Type)        ? FJ_COMPLEX_BITS
           : is_like(type, &PyTuple_Type)          ? FJ_TUPLE_ITEMS
           : type == registry->state->identity     ? FJ_BY_MARK
           : is_like(type, &PyFrozenSet_Type)      ? FJ_SET_ITEMS
           : type == &PyList_Type                  ? FJ_LIST_ITEMS
           : type == &PyDict_Type                  ? FJ_DICT_ITEMS
           : type == &PySet_Type                   ? FJ_SET_ITEMS
                                                   : FJ_BY_TYPE;
}

/* A nested tuple counts as not inert: it is rare, and a recursion check can raise. */
static int
has_inert_items(const FjRegistry *registry, PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyTypeObject *type = Py_TYPE(PyTuple_GET_ITEM(tuple, i));
        if (!fj_static_is_by_value(type) &&
            !fj_static_rule_is_inert(rule_of_type(registry, type))) {
            return 0;
        }
    }
    return 1;
}

FjStaticRule
fj_static_rule_of_others(const FjRegistry *registry, PyObject *value)
{
    FjStaticRule rule = rule_of_type(registry, Py_TYPE(value));
    return rule == FJ_TUPLE_ITEMS && has_inert_items(registry, value) ? FJ_INERT_TUPLE : rule;
}

int
fj_static_has_no_attributes(PyObject *value)
{
    if (Py_TYPE(value)->tp_dictoffset == 0) {
        return 1;
    }
    PyObject **dict = FJ_FREE_THREADED ? NULL : _PyObject_GetDictPtr(value);
    return dict != NULL && (*dict == NULL || PyDict_GET_SIZE(*dict) == 0);
}

int
fj_static_kind_is_fixed(const FjNodeKind *kind, PyObject *value)
{
    PyObject *fixed = kind->fixed;
    return FJ_LIKELY(fixed == NULL) ? 0
           : fixed == Py_True       ? 1
                                    : fj_steal_truth(PyObject_CallOneArg(fixed, value));
}

int
fj_static_is_fixed(FjRegistry *registry, PyObject *value, FjStaticRule rule)
{
    if (rule != FJ_BY_TYPE) {
        return fj_static_rule_is_inert(rule);
    }
    FjNodeKind *kind = fj_registry_kind(registry, value);
    if (kind == NULL) {
        return -1;
    }
    int result = fj_static_kind_is_fixed(kind, value);
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

/* Python's hash won't do: hash(-1) == hash(-2) and hash(0) == hash(2**61 - 1), but
 * explanations know evicted Structures by their hashes. */
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

static int
identity_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    return PyTuple_Type.tp_traverse(op, visit, arg);
}

static PyType_Slot identity_slots[] = {
    {Py_tp_doc,
     "A private mark for an object in a key. Only equals marks of the same object."},
    {Py_tp_traverse, identity_traverse},
    {0, NULL},
};

FJ_SPEC(fj_identity_spec, "filterjit._core.Identity", 0, identity_slots,
        Py_TPFLAGS_DISALLOW_INSTANTIATION);

PyObject *
fj_static_identity(FjState *state, PyObject *value)
{
    PyObject *mark = fj_compat_tuple_alloc(state->identity, 1);
    if (mark != NULL) {
        PyTuple_SET_ITEM(mark, 0, Py_NewRef(value));
    }
    return mark;
}

/* ---- hash and equality ---- */

static int
hash_items(FjRegistry *registry, PyObject *tuple, Py_uhash_t *hash)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        Py_hash_t part;
        if (fj_static_hash(registry, item, fj_static_rule(registry, item), &part) < 0) {
            return -1;
        }
        *hash = fj_hash_mix(*hash, (Py_uhash_t)part);
    }
    return 0;
}

static int
hash_by_value(PyObject *value, Py_uhash_t *hash)
{
    Py_hash_t own = PyObject_Hash(value);
    *hash = fj_hash_mix(*hash, (Py_uhash_t)own);
    return own == -1 ? -1 : 0;
}

int
fj_static_hash(FjRegistry *registry, PyObject *value, FjStaticRule rule, Py_hash_t *result)
{
    PyTypeObject *type = Py_TYPE(value);
    Py_uhash_t hash = fj_hash_mix(0, fj_hash_address(type));
    int failed = 0;
    switch (rule) {
    case FJ_BY_IDENTITY:
        hash = fj_hash_mix(hash, fj_hash_address(value));
        break;
    case FJ_BY_MARK:
        hash = fj_hash_mix(hash, fj_hash_address(PyTuple_GET_ITEM(value, 0)));
        break;
    case FJ_FLOAT_BITS:
        hash = hash_double(hash, PyFloat_AS_DOUBLE(value));
        break;
    case FJ_COMPLEX_BITS: {
        Py_complex number = ((PyComplexObject *)value)->cval;
        hash = hash_double(hash_double(hash, number.real), number.imag);
        break;
    }
    case FJ_INERT_TUPLE:
        failed = hash_items(registry, value, &hash);
        break;
    default:
        failed = type == &PyLong_Type ? hash_int(value, &hash) : hash_by_value(value, &hash);
    }
    *result = fj_hash_finish(hash);
    return failed;
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
    if (fj_static_is_by_value(type)) {
        return PyObject_RichCompareBool(a, b, Py_EQ);
    }
    switch (rule_of_type(registry, type)) {
    case FJ_BY_MARK:
        return PyTuple_GET_ITEM(a, 0) == PyTuple_GET_ITEM(b, 0);
    case FJ_FLOAT_BITS:
        return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    case FJ_COMPLEX_BITS: {
        Py_complex x = ((PyComplexObject *)a)->cval, y = ((PyComplexObject *)b)->cval;
        return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
    }
    case FJ_TUPLE_ITEMS: {
        int same = PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a) && same > 0; i++) {
            same = fj_static_equal(registry, PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        }
        return same;
    }
    default:
        return 0;
    }
}
