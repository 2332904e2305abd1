/* A bounded mapping from Structure to Variant, on a hash table (table.h).
 *
 * Eviction scans all variants.  It happens at most once per compilation, which takes a
 * thousand times longer.
 *
 * Python code can run when Structures are compared (a static's __eq__) and when a variant is
 * dropped.  The table is then consistent. */
#include "call/cache.h"

#include <structmember.h>

static int
variant_has_structure(PyObject *value, const void *probe)
{
    return fj_structure_equal(((FjVariant *)value)->structure, (FjStructure *)probe);
}

int
fj_cache_find(FjCache *cache, FjStructure *structure, FjVariant **variant)
{
    PyObject *value;
    int found;
    FJ_LOCKED(cache, found = fj_table_find(&cache->variants, structure->hash,
                                           variant_has_structure, structure, &value));
    *variant = (FjVariant *)value;
    return found;
}

int
fj_cache_add(FjCache *cache, FjVariant *variant)
{
    int added;
    fj_cache_touch(cache, variant);
    FJ_LOCKED(cache, added = fj_table_add(&cache->variants, variant->structure->hash,
                                          (PyObject *)variant));
    return added;
}

void
fj_cache_remove(FjCache *cache, FjVariant *variant)
{
    FJ_LOCKED(cache, fj_table_remove(&cache->variants, variant->structure->hash,
                                     (PyObject *)variant));
}

void
fj_cache_set_next(FjCache *cache, FjVariant *variant, const FjVariant *next_variant)
{
    Py_ssize_t position;
    FJ_LOCK(cache);
    /* A position instead of a reference lets an evicted variant die. */
    position = next_variant == variant
                   ? -1
                   : fj_table_position(&cache->variants, next_variant->structure->hash,
                                       (const PyObject *)next_variant);
    FJ_STORE_SIZE(variant->next_variant, position + 1);
    if (position >= 0) {
        int i = 0;
        while (i < FJ_CACHE_RECENT - 1 && cache->recent[i] != position + 1) {
            i++;
        }
        memmove(cache->recent + 1, cache->recent, (size_t)i * sizeof(Py_ssize_t));
        cache->recent[0] = position + 1;
    }
    FJ_UNLOCK();
}

/* Returns the least recently used cached variant (borrowed) if there are too many, or NULL. */
static FjVariant *
find_evictable(const FjCache *cache)
{
    FjVariant *oldest = NULL;
    size_t position = 0, cached = 0;
    PyObject *value;
    if (cache->variants.live <= cache->maxsize) {
        return NULL;
    }
    while ((value = fj_table_next(&cache->variants, &position)) != NULL) {
        FjVariant *variant = (FjVariant *)value;
        if (fj_variant_is_cached(variant)) {
            cached++;
            if (oldest == NULL ||
                FJ_LOAD_COUNT(variant->last_used) < FJ_LOAD_COUNT(oldest->last_used)) {
                oldest = variant;
            }
        }
    }
    return cached > cache->maxsize ? oldest : NULL;
}

static int
has_variant(const FjCache *cache, const FjVariant *variant)
{
    return fj_table_position(&cache->variants, variant->structure->hash,
                             (const PyObject *)variant) >= 0;
}

/* fj_cache_insert_traced of a locked Cache. */
static int
insert_traced(FjCache *cache, FjVariant *variant)
{
    FjVariant *other;
    fj_cache_touch(cache, variant);
    if (!variant->evicted && !has_variant(cache, variant)) {
        int found = fj_cache_find(cache, variant->structure, &other);
        if (found > 0) {
            Py_DECREF(other);
        }
        /* A static's __eq__ can make a call that inserts the variant in between. */
        if (found < 0 ||
            (found == 0 && !has_variant(cache, variant) && fj_cache_add(cache, variant) < 0)) {
            return -1;
        }
    }
    while ((other = find_evictable(cache)) != NULL) {
        FJ_STORE_INT(other->evicted, 1);
        fj_cache_remove(cache, other);
    }
    return 0;
}

int
fj_cache_insert_traced(FjCache *cache, FjVariant *variant)
{
    int result;
    FJ_LOCKED(cache, result = insert_traced(cache, variant));
    return result;
}

static PyObject *
cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"registry", "function",   "signature", "hooks",
                               "maxsize",  "attributes", NULL};
    FjState *state = fj_state_of(type);
    PyObject *registry, *function, *signature, *hooks, *attributes;
    Py_ssize_t maxsize;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!OnO!:Cache", keywords,
                                     state->registry, &registry, state->structure, &function,
                                     state->signature, &signature, &hooks, &maxsize,
                                     &PyDict_Type, &attributes)) {
        return NULL;
    }
    if (maxsize < 1) {
        return PyErr_Format(PyExc_ValueError, "maxsize must be at least 1");
    }
    if (!fj_variant_takes_structure((FjStructure *)function)) {
        return PyErr_Format(PyExc_ValueError,
                            "`function` must be a Structure that flatten() returned");
    }
    FjCache *self = (FjCache *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->registry = (FjRegistry *)Py_NewRef(registry);
        self->function = (FjStructure *)Py_NewRef(function);
        self->signature = (FjSignature *)Py_NewRef(signature);
        self->hooks = Py_NewRef(hooks);
        self->attributes = Py_NewRef(attributes);
        self->maxsize = (size_t)maxsize;
        self->clock = 1; /* a new variant counts as unused */
    }
    return (PyObject *)self;
}

/* Stores the counters in the record, which outlives the Cache: reports add them up.  Runs no
 * Python code, because a record has object's __setattr__. */
static void
leave_counters(const FjCache *self)
{
    if (self->record == NULL) {
        return;
    }
    PyObject *exception = fj_compat_get_raised();
    PyObject *counters = Py_BuildValue("KKN", fj_total(&self->calls), fj_total(&self->hits),
                                       fj_times_as_dict(&self->times));
    if (counters == NULL || PyObject_SetAttrString(self->record, "counters", counters) < 0) {
        PyErr_Clear();
    }
    Py_XDECREF(counters);
    fj_compat_set_raised(exception);
}

/* (P) */
static void
drop_variants(FjCache *self)
{
    fj_table_clear(&self->variants);
    for (int i = 0; i < FJ_LANES; i++) {
        PyObject *last = fj_exchange(&self->last[i][0], NULL);
        Py_XDECREF(last);
    }
}

static int
cache_clear(PyObject *op)
{
    FjCache *self = (FjCache *)op;
    leave_counters(self);
    drop_variants(self);
    Py_CLEAR(self->attributes);
    Py_CLEAR(self->record);
    return 0;
}

#define CACHE_REFERENCES(WHAT)                                                                \
    WHAT(self->registry);                                                                     \
    WHAT(self->function);                                                                     \
    WHAT(self->signature);                                                                    \
    WHAT(self->hooks);                                                                        \
    WHAT(self->attributes);                                                                   \
    WHAT(self->record);                                                                       \
    for (int i = 0; i < FJ_LANES; i++) {                                                      \
        WHAT(self->last[i][0]);                                                               \
    }

FJ_GC_TYPE(cache, FjCache, CACHE_REFERENCES, fj_table_traverse(&self->variants, visit, arg),
           (void)cache_clear(op), (void)0)

static PyObject *
cache_clear_method(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FjCache *self = (FjCache *)op;
    size_t position = 0;
    PyObject *value;
    FJ_LOCK(op);
    while ((value = fj_table_next(&self->variants, &position)) != NULL) {
        FJ_STORE_INT(((FjVariant *)value)->evicted, 1);
    }
    drop_variants(self);
    FJ_UNLOCK();
    Py_RETURN_NONE;
}

static PyObject *
cache_variants(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyObject *list = PyList_New(0);
    size_t position = 0;
    PyObject *value;
    FJ_LOCK(op);
    while (list != NULL &&
           (value = fj_table_next(&((FjCache *)op)->variants, &position)) != NULL) {
        if (PyList_Append(list, value) < 0) {
            Py_CLEAR(list);
        }
    }
    FJ_UNLOCK();
    return list;
}

/* insert_compiled(structure, call, outputs, may_raise) -> Variant, which the Cache doesn't
 * have if it has an equal one.  The trace of an Output of `call` is an index into `outputs`,
 * the results' Structures. */
static PyObject *
cache_insert_compiled(PyObject *op, PyObject *args)
{
    FjCache *self = (FjCache *)op;
    FjState *state = fj_state_of(Py_TYPE(op));
    PyObject *structure, *call, *outputs;
    int may_raise;
    if (!PyArg_ParseTuple(args, "O!OO!p:insert_compiled", state->structure, &structure, &call,
                          &PyTuple_Type, &outputs, &may_raise)) {
        return NULL;
    }
    FjStructure *arguments = (FjStructure *)structure;
    if (arguments->nodes[0].code != FJ_ARGUMENTS || arguments->registry != self->registry) {
        return PyErr_Format(PyExc_ValueError,
                            "the structure is not one of this cache's calls");
    }
    if (fj_structure_hash(arguments) < 0) {
        return NULL;
    }
    FjVariant *variant = fj_variant_new(state, self->function, arguments);
    if (variant == NULL) {
        return NULL;
    }
    variant->call = Py_NewRef(call);
    int failed = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs) && !failed; i++) {
        failed = fj_variant_add_output(variant, PyTuple_GET_ITEM(outputs, i),
                                       may_raise ? FJ_MAY_RAISE_YES : FJ_MAY_RAISE_NO) < 0;
    }
    if (failed || fj_cache_insert_traced(self, variant) < 0) {
        Py_CLEAR(variant);
    }
    return (PyObject *)variant;
}

static PyObject *
cache_insert_traced(PyObject *op, PyObject *value)
{
    FjCache *self = (FjCache *)op;
    FjVariant *variant = (FjVariant *)value;
    if (Py_TYPE(value) != fj_state_of(Py_TYPE(op))->variant ||
        variant->function != self->function) {
        return PyErr_Format(PyExc_TypeError, "insert_traced takes a Variant of this cache");
    }
    if (FJ_LOAD_SIZE(variant->num_traces) > 0 && fj_cache_insert_traced(self, variant) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef cache_methods[] = {
    FJ_METHOD("insert_compiled", cache_insert_compiled, METH_VARARGS,
              "($self, structure, call, outputs, may_raise, /)",
              "Adds and returns a variant that was compiled elsewhere."),
    FJ_METHOD(
        "insert_traced", cache_insert_traced, METH_O, "($self, variant, /)",
        "Adds a variant of `_find_or_compile` if it was traced and no equal one exists."),
    FJ_METHOD("clear", cache_clear_method, METH_NOARGS, "($self, /)", "Drops all variants."),
    FJ_METHOD("variants", cache_variants, METH_NOARGS, "($self, /)",
              "Returns a list of the variants."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef cache_getset[] = {
    {"calls", fj_get_total, NULL, NULL, (void *)offsetof(FjCache, calls)},
    {"hits", fj_get_total, NULL, NULL, (void *)offsetof(FjCache, hits)},
    {"_times", fj_times_get, NULL, NULL, (void *)offsetof(FjCache, times)},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef cache_members[] = {
    {"function", T_OBJECT, offsetof(FjCache, function), READONLY, NULL},
    {"signature", T_OBJECT, offsetof(FjCache, signature), READONLY, NULL},
    {"hooks", T_OBJECT, offsetof(FjCache, hooks), READONLY, NULL},
    {"attributes", T_OBJECT, offsetof(FjCache, attributes), READONLY, NULL},
    {"maxsize", T_PYSSIZET, offsetof(FjCache, maxsize), READONLY, NULL},
    {"timed", T_INT, offsetof(FjCache, timed), 0, NULL},
    {"record", T_OBJECT, offsetof(FjCache, record), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(FjCache, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_doc, "Cache(registry, function, signature, hooks, maxsize, attributes)\n--\n\n"
                "The variants of one function with one set of settings."},
    {Py_tp_new, cache_new},
    {Py_tp_traverse, cache_traverse},
    {Py_tp_clear, cache_clear},
    {Py_tp_dealloc, cache_dealloc},
    {Py_tp_methods, cache_methods},
    {Py_tp_members, cache_members},
    {Py_tp_getset, cache_getset},
    {0, NULL},
};

FJ_SPEC(fj_cache_spec, "filterjit._core.Cache", sizeof(FjCache), cache_slots, 0);
