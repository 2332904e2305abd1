/* What is known of the arguments that have matched a Structure: an argument that is the same
 * object as before, and unchanged, need not be walked.  The head of known.c proves that this
 * is exact, although nothing known holds a reference.
 *
 * match_python_free.c asks for what is known, and has it recorded as it walks.  Nothing in
 * this file runs Python code, and nothing fails: where there is no memory, nothing is known.
 */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* Of one argument: its containers, its arrays and its numbered objects. */
typedef struct FjKnownArgument FjKnownArgument;

/* Of the arguments of a variant, which owns it. */
typedef struct FjKnownArguments FjKnownArguments;

/* A walk of fewer nodes takes no longer than a check. */
#define FJ_KNOWN_MIN_NODES 64

/* The number of arguments that are recorded at most. */
#define FJ_KNOWN_ARGUMENTS 4

/* NULL if there is nothing to be known of arguments with this Structure, or no memory. */
FjKnownArguments *fj_known_new(const FjStructure *structure);

void fj_known_free(FjKnownArguments *known);

/* The record of the argument for this parameter; NULL if it is not large. */
FjKnownArgument *fj_known_find(FjKnownArguments *known, Py_ssize_t parameter);

/* Whether no two of the numbered objects of a call are one.  1, 0, or -1 with MemoryError.
 * `known` may be NULL. */
int fj_known_are_distinct(FjKnownArguments *known, PyObject *const *objects, Py_ssize_t count);

/* ---- checking ---- */

/* Whether the argument is the recorded one, and has not changed. */
int fj_known_check(FjKnownArgument *argument, FjRegistry *registry, PyObject *object);

/* Pushes the arrays and the numbered objects of an argument that has passed the check.  1; 0
 * if an object that occurs again is not that which the Structure says; or -1 with MemoryError.
 */
int fj_known_push(const FjKnownArgument *argument, FjLeafBuf *arrays, FjLeafBuf *objects);

/* ---- recording ---- */

/* Is called before a walk of the argument, of which nothing is known.  1 if it is worth a
 * record: then the walk adds to it, each container before its children. */
int fj_known_start(FjKnownArgument *argument, PyObject *object);

/* Ends the record: `arrays` and `objects` are what the walk has pushed. */
void fj_known_end(FjKnownArgument *argument, int matched, PyObject *object,
                  PyObject *const *arrays, Py_ssize_t num_arrays, PyObject *const *objects,
                  Py_ssize_t num_objects);

/* The walk has met something of which there is no record. */
void fj_known_fail(FjKnownArgument *argument);

/* Adds a container, which may not match the node.  `num_arrays` is the number of the
 * argument's arrays before it. */
void fj_known_add(FjKnownArgument *argument, const FjStructure *structure, const FjNode *node,
                  PyObject *object, Py_ssize_t num_arrays);

/* Adds a value that has been compared with the snapshot of the node's. */
void fj_known_add_static(FjKnownArgument *argument, const FjStructure *structure,
                         const FjNode *node, PyObject *value);

/* Adds an object that occurs again, with its number. */
void fj_known_add_ref(FjKnownArgument *argument, PyObject *object, uint32_t number);
