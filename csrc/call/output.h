/* An Output: what the callable of a variant returns.
 */
#ifndef FJ_OUTPUT_H
#define FJ_OUTPUT_H

#include "call/variant.h"

/* To JAX it is a pytree node, whose children are the
 * arrays and whose aux data is the number of the trace.  JAX's caches live long and hold aux
 * data, so this way they hold an int and no reference to objects of the user's. */
typedef struct {
    PyObject_HEAD PyObject *arrays; /* tuple */
    FjVariant *variant;             /* NULL in one that JAX has unflattened */
    FjStructure *structure;         /* NULL in one that JAX has unflattened */
    PyObject *given_trace; /* what JAX has unflattened it with if that was of a subclass
                            * of int: see ANY_TRACE in _call/_sharded_call.py; or NULL */
    Py_ssize_t trace;      /* -1 until JAX flattens it */
} FjOutput;

/* The Structure of an Output that this variant's callable returned, borrowed from the one or
 * the other.  NULL with an error if the Output does not belong to this variant. */
FjStructure *fj_variant_output_structure(const FjVariant *variant, const FjOutput *output);

/* An Output of a tuple of arrays, as JAX unflattens it: without a variant and a Structure.
 * NULL with an error. */
PyObject *fj_output_new(FjState *state, PyObject *arrays, Py_ssize_t trace);

/* Module functions: how JAX flattens and unflattens an Output. */
PyObject *fj_output_flatten(PyObject *module, PyObject *output);
PyObject *fj_output_unflatten(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#endif
