/* The module: its types, and the functions that drive the core from Python.
 *
 * Multi-phase initialization; all state is the module's (state.h).  The functions here are for
 * the Python side and for tests; none stands on the road of a call.
 */
#include "call/bind.h"
#include "call/bound_method.h"
#include "call/cache.h"
#include "base/common.h"
#include "call/compiled.h"
#include "walk/flatten.h"
#include "call/getattribute.h"
#include "call/hook_method.h"
#include "call/filter_jit.h"
#include "base/leafbuf.h"
#include "structure/registry.h"
#include "call/partial.h"
#include "tree/partition.h"
#include "base/state.h"
#include "structure/statics.h"
#include "structure/structure.h"
#include "tree/structure_type.h"
#include "tree/tree_functions.h"
#include "call/variant.h"

/* flatten(registry, tree) -> (arrays, structure) */
static PyObject *
core_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    FjState *state = PyModule_GetState(module);
    if (nargs != 2 || Py_TYPE(args[0]) != state->registry) {
        PyErr_SetString(PyExc_TypeError, "flatten takes (registry, tree)");
        return NULL;
    }
    PyObject *result = NULL;
    PyObject *room[FJ_LEAFBUF_FEW];
    FjLeafBuf arrays;
    fj_leafbuf_init(&arrays, room, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_flatten_tree((FjRegistry *)args[0], args[1], &arrays);
    if (structure != NULL) {
        PyObject *tuple = fj_leafbuf_as_tuple(&arrays);
        result = tuple == NULL ? NULL : Py_BuildValue("(NO)", tuple, structure);
    }
    fj_leafbuf_clear(&arrays);
    Py_XDECREF(structure);
    return result;
}

/* same_static(registry, a, b) -> bool */
static PyObject *
core_same_static(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    FjState *state = PyModule_GetState(module);
    if (nargs != 3 || Py_TYPE(args[0]) != state->registry) {
        PyErr_SetString(PyExc_TypeError, "same_static takes (registry, a, b)");
        return NULL;
    }
    int same = fj_static_equal_now((FjRegistry *)args[0], args[1], args[2]);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

/* identity(value) -> what is equal to nothing but itself of the very same value */
static PyObject *
core_identity(PyObject *module, PyObject *value)
{
    return fj_static_identity(PyModule_GetState(module), value);
}

static PyMethodDef core_functions[] = {
    {"flatten", (PyCFunction)(void (*)(void))core_flatten, METH_FASTCALL,
     "flatten(registry, tree) -> (arrays, structure)"},
    {"same_static", (PyCFunction)(void (*)(void))core_same_static, METH_FASTCALL,
     "same_static(registry, a, b) -> whether two statics share a compiled program"},
    {"identity", core_identity, METH_O,
     "identity(value) -> a part of a key that stands for the very value, not looked into"},
    {"tree_leaves", (PyCFunction)(void (*)(void))fj_tree_leaves, METH_FASTCALL,
     "tree_leaves(registry, tree, is_leaf) -> list"},
    {"tree_paths", (PyCFunction)(void (*)(void))fj_tree_paths, METH_FASTCALL,
     "tree_paths(registry, tree, is_leaf) -> list of str"},
    {"tree_map", (PyCFunction)(void (*)(void))fj_tree_map, METH_FASTCALL,
     "tree_map(registry, function, trees, is_leaf) -> tree"},
    {"tree_flatten", (PyCFunction)(void (*)(void))fj_tree_flatten, METH_FASTCALL,
     "tree_flatten(registry, tree, expression, is_leaf) -> (leaves, structure)"},
    {"from_parts", (PyCFunction)(void (*)(void))fj_tree_from_parts, METH_FASTCALL,
     "from_parts(registry, hole, skeleton, statics) -> structure: undoes Structure.parts"},
    {"partition", (PyCFunction)(void (*)(void))fj_partition, METH_FASTCALL,
     "partition(registry, tree, expressions, is_leaf, replace) -> tuple of trees"},
    {"partition_dict", (PyCFunction)(void (*)(void))fj_partition_dict, METH_FASTCALL,
     "partition_dict(registry, tree, candidates, expressions, is_leaf) -> (structure, "
     "*dicts)"},
    {"combine", (PyCFunction)(void (*)(void))fj_partition_combine, METH_FASTCALL,
     "combine(registry, trees, is_leaf, strict) -> tree"},
    {"output_flatten", fj_output_flatten, METH_O,
     "output_flatten(output) -> (arrays, trace): for jax.tree_util.register_pytree_node"},
    {"output_unflatten", (PyCFunction)(void (*)(void))fj_output_unflatten, METH_FASTCALL,
     "output_unflatten(trace, arrays) -> output: the other half"},
    {"rebuild", (PyCFunction)(void (*)(void))fj_filter_jit_rebuild, METH_FASTCALL,
     "rebuild(cache, arrays) -> FilterJit: what FilterJit.parts took apart"},
    {NULL, NULL, 0, NULL},
};

static int
make_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base, PyTypeObject **place)
{
    *place = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, (PyObject *)base);
    return *place == NULL ? -1 : 0;
}

static int
add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base, PyTypeObject **place)
{
    return make_type(module, spec, base, place) < 0 ? -1 : PyModule_AddType(module, *place);
}

static int
intern_names(FjState *state)
{
#define FJ_INTERN(name)                                                                       \
    if ((state->str_##name = PyUnicode_InternFromString(#name)) == NULL) {                    \
        return -1;                                                                            \
    }
    FJ_NAMES(FJ_INTERN)
#undef FJ_INTERN
    return 0;
}

static int
core_exec(PyObject *module)
{
    FjState *state = PyModule_GetState(module);
    return intern_names(state) < 0 ||
                   add_type(module, &fj_node_kind_spec, NULL, &state->kind) < 0 ||
                   add_type(module, &fj_registry_spec, NULL, &state->registry) < 0 ||
                   add_type(module, &fj_frozen_spec, &PyTuple_Type, &state->frozen) < 0 ||
                   add_type(module, &fj_structure_spec, NULL, &state->structure) < 0 ||
                   add_type(module, &fj_signature_spec, NULL, &state->signature) < 0 ||
                   add_type(module, &fj_output_spec, NULL, &state->output) < 0 ||
                   add_type(module, &fj_variant_spec, NULL, &state->variant) < 0 ||
                   add_type(module, &fj_cache_spec, NULL, &state->cache) < 0 ||
                   add_type(module, &fj_filter_jit_spec, NULL, &state->filter_jit) < 0 ||
                   add_type(module, &fj_bound_method_spec, NULL, &state->bound) < 0 ||
                   add_type(module, &fj_getattribute_spec, NULL, &state->getattribute) < 0 ||
                   add_type(module, &fj_partial_spec, NULL, &state->partial) < 0 ||
                   add_type(module, &fj_compiled_spec, NULL, &state->compiled) < 0 ||
                   make_type(module, &fj_hook_method_spec, NULL, &state->hook_method) < 0 ||
                   fj_hook_methods_add(state, state->filter_jit, fj_filter_jit_hooks) < 0 ||
                   fj_hook_methods_add(state, state->bound, fj_bound_method_hooks) < 0
               ? -1
               : 0;
}

static int
core_traverse(PyObject *module, visitproc visit, void *arg)
{
    FjState *state = PyModule_GetState(module);
    Py_VISIT(state->kind);
    Py_VISIT(state->registry);
    Py_VISIT(state->frozen);
    Py_VISIT(state->structure);
    Py_VISIT(state->signature);
    Py_VISIT(state->output);
    Py_VISIT(state->variant);
    Py_VISIT(state->cache);
    Py_VISIT(state->filter_jit);
    Py_VISIT(state->bound);
    Py_VISIT(state->getattribute);
    Py_VISIT(state->partial);
    Py_VISIT(state->compiled);
    Py_VISIT(state->hook_method);
    return 0;
}

static int
core_clear(PyObject *module)
{
    FjState *state = PyModule_GetState(module);
    Py_CLEAR(state->kind);
    Py_CLEAR(state->registry);
    Py_CLEAR(state->frozen);
    Py_CLEAR(state->structure);
    Py_CLEAR(state->signature);
    Py_CLEAR(state->output);
    Py_CLEAR(state->variant);
    Py_CLEAR(state->cache);
    Py_CLEAR(state->filter_jit);
    Py_CLEAR(state->bound);
    Py_CLEAR(state->getattribute);
    Py_CLEAR(state->partial);
    Py_CLEAR(state->compiled);
    Py_CLEAR(state->hook_method);
#define FJ_CLEAR(name) Py_CLEAR(state->str_##name);
    FJ_NAMES(FJ_CLEAR)
#undef FJ_CLEAR
    return 0;
}

static void
core_free(void *module)
{
    core_clear((PyObject *)module);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, core_exec},
#if PY_VERSION_HEX >= 0x030C0000
    /* Objects of one interpreter never meet another's; jaxlib allows only the first. */
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    /* Without the GIL a hit would have to lock what it borrows now (match.c), and each walk of
     * a list, a dict or an instance that another thread may change. */
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef core_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "filterjit._core",
    .m_doc = "The C core of filterjit: it knows pytrees and nothing of JAX.",
    .m_size = sizeof(FjState),
    .m_methods = core_functions,
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&core_definition);
}
