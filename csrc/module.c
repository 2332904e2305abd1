/* The extension module filterjit._core: its types and functions.  It uses multi-phase
 * initialization, and all state is per module (state.h).
 *
 * Python code can run in flatten.c, and in comparing statics (snapshot_compare.c, statics.c).
 */
#include "base/common.h"
#include "base/leafbuf.h"
#include "base/state.h"
#include "structure/registry.h"
#include "structure/statics.h"
#include "structure/structure.h"
#include "walk/flatten.h"
#include "tree/tree_functions.h"
#include "call/variant.h"

static PyObject *
core_flatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    FjRegistry *registry = fj_tree_registry(module, args, nargs, 2, "(registry, tree)");
    if (registry == NULL) {
        return NULL;
    }
    PyObject *result = NULL;
    FJ_LEAFBUF(arrays, FJ_LEAFBUF_FEW);
    FjStructure *structure = fj_flatten_tree(registry, args[1], &arrays);
    if (structure != NULL) {
        result = Py_BuildValue("(NO)", fj_leafbuf_as_tuple(&arrays), structure);
    }
    fj_leafbuf_clear(&arrays);
    Py_XDECREF(structure);
    return result;
}

static PyObject *
core_same_static(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    FjRegistry *registry = fj_tree_registry(module, args, nargs, 3, "(registry, a, b)");
    int same = registry == NULL ? -1 : fj_static_equal_now(registry, args[1], args[2]);
    return same < 0 ? NULL : PyBool_FromLong(same);
}

static PyObject *
core_is_fixed(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    FjRegistry *registry = fj_tree_registry(module, args, nargs, 2, "(registry, value)");
    if (registry == NULL) {
        return NULL;
    }
    int is_fixed = fj_static_is_fixed(registry, args[1], fj_static_rule(registry, args[1]));
    return is_fixed < 0 ? NULL : PyBool_FromLong(is_fixed);
}

static PyObject *
core_identity(PyObject *module, PyObject *value)
{
    return fj_static_identity(PyModule_GetState(module), value);
}

static PyMethodDef core_functions[] = {
    FJ_METHOD("flatten", core_flatten, METH_FASTCALL, "($module, registry, tree, /)",
              "Flattens a tree. Returns (arrays, structure)."),
    FJ_METHOD("same_static", core_same_static, METH_FASTCALL, "($module, registry, a, b, /)",
              "Returns True if two static values are equal, so they share a variant."),
    FJ_METHOD("is_fixed", core_is_fixed, METH_FASTCALL, "($module, registry, value, /)",
              "Returns True if a static value never changes what it equals."),
    FJ_METHOD("identity", core_identity, METH_O, "($module, value, /)",
              "Returns a key that only equals keys of the same object."),
    FJ_METHOD(
        "tree_flatten", fj_tree_flatten, METH_FASTCALL,
        "($module, registry, tree, expression, is_leaf, /)",
        "Flattens a tree. Returns (leaves, structure) with the leaves that `expression`\n"
        "selects."),
    FJ_METHOD(
        "tree_groups", fj_tree_groups, METH_FASTCALL,
        "($module, registry, tree, candidates, expressions, is_leaf, /)",
        "Returns (leaves, structure, groups): the candidates, the Structure of the rest,\n"
        "and a list with the number of the filter that selects each candidate."),
    FJ_METHOD("from_skeleton", fj_tree_from_skeleton, METH_FASTCALL,
              "($module, registry, hole, skeleton, leaves, /)",
              "Rebuilds a Structure from its _skeleton(hole) and _leaves(hole)."),
    FJ_METHOD("partition", fj_tree_partition, METH_FASTCALL,
              "($module, registry, tree, expressions, is_leaf, replace, /)",
              "Returns a tuple of trees, one per filter and one for the remaining leaves."),
    FJ_METHOD("combine", fj_tree_combine, METH_FASTCALL,
              "($module, registry, trees, is_leaf, strict, /)",
              "Combines a tuple of trees into one tree."),
    FJ_METHOD("output_flatten", fj_output_flatten, METH_O, "($module, output, /)",
              "Flattens an Output for jax.tree_util.register_pytree_node: (arrays, trace)."),
    FJ_METHOD("output_unflatten", fj_output_unflatten, METH_FASTCALL,
              "($module, trace, arrays, /)",
              "Unflattens an Output for jax.tree_util.register_pytree_node."),
    {NULL, NULL, 0, NULL},
};

/* Creates a type and stores it in `*place` (owned). */
static int
create_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base, PyTypeObject **place)
{
    *place = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, (PyObject *)base);
    return *place == NULL ? -1 : PyModule_AddType(module, *place);
}

static int
core_exec(PyObject *module)
{
    FjState *state = PyModule_GetState(module);
#define FJ_INTERN(name)                                                                       \
    if ((state->str_##name = PyUnicode_InternFromString(#name)) == NULL) {                    \
        return -1;                                                                            \
    }
    FJ_NAMES(FJ_INTERN)
#define FJ_CREATE(member, spec, base)                                                         \
    if (create_type(module, &spec, base, &state->member) < 0) {                               \
        return -1;                                                                            \
    }
    FJ_TYPES(FJ_CREATE)
    static const struct {
        const char *name;
        long value;
    } numbers[] = {{"reads_instance_values", FJ_HAVE_INSTANCE_VALUES},
                   {"STATIC_ARGUMENT", FJ_STATIC_ARGUMENT},
                   {"TRACED_ARGUMENT", FJ_TRACED_ARGUMENT},
                   {"CHOSEN_ARGUMENT", FJ_CHOSEN_ARGUMENT}};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(numbers); i++) {
        if (PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
core_traverse(PyObject *module, visitproc visit, void *arg)
{
    FjState *state = PyModule_GetState(module);
#define FJ_VISIT(member, spec, base) Py_VISIT(state->member);
    FJ_TYPES(FJ_VISIT)
    return 0;
}

static int
core_clear(PyObject *module)
{
    FjState *state = PyModule_GetState(module);
#define FJ_CLEAR_TYPE(member, spec, base) Py_CLEAR(state->member);
    FJ_TYPES(FJ_CLEAR_TYPE)
#define FJ_CLEAR_NAME(name) Py_CLEAR(state->str_##name);
    FJ_NAMES(FJ_CLEAR_NAME)
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
    /* jaxlib only works in the main interpreter. */
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, FJ_FREE_THREADED ? Py_MOD_GIL_NOT_USED : Py_MOD_GIL_USED}, /* threads.h */
#endif
    {0, NULL},
};

static struct PyModuleDef core_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "filterjit._core",
    .m_doc = "The C core of filterjit. It doesn't depend on JAX.",
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
