/* Remembers the arguments that matched a Structure.  A large argument that is the same object
 * as before, and unchanged, isn't walked.  The head of known.c shows that this is exact
 * although it holds no references.
 *
 * match.c checks arguments here and records them during a borrowed walk.  Nothing here runs
 * Python code or fails: without memory, nothing is remembered. */
#pragma once

#include "base/common.h"
#include "base/leafbuf.h"
#include "structure/structure.h"

/* One argument: its containers, arrays and numbered objects. */
typedef struct FjKnownArgument FjKnownArgument;

/* The arguments of a variant, which owns this. */
typedef struct FjKnownArguments FjKnownArguments;

/* Walking fewer nodes is as fast as checking them. */
#define FJ_KNOWN_MIN_NODES 64

/* The most arguments that are recorded. */
#define FJ_KNOWN_ARGUMENTS 4

/* NULL if no argument is worth recording, or without memory. */
FjKnownArguments *fj_known_new(const FjStructure *structure);

void fj_known_free(FjKnownArguments *known);

/* Returns the record for this parameter's argument, or NULL if it isn't large. */
FjKnownArgument *fj_known_find(FjKnownArguments *known, Py_ssize_t parameter);

/* 1 if all numbered objects are distinct, 0, or -1 with an error.  `known` can be NULL. */
int fj_known_are_distinct(FjKnownArguments *known, PyObject *const *objects, Py_ssize_t count);

/* ---- checking ---- */

/* True if the argument is the recorded one, unchanged. */
int fj_known_check(FjKnownArgument *argument, FjRegistry *registry, PyObject *object);

/* Pushes the arrays and numbered objects of a checked argument.  1, 0 if a REF differs from
 * the Structure's, or -1 with MemoryError. */
int fj_known_push(const FjKnownArgument *argument, FjLeafBuf *arrays, FjLeafBuf *objects);

/* ---- recording ---- */

/* Called before walking an argument without a valid record.  1 if recording is worthwhile: the
 * walk then adds each container, parents first. */
int fj_known_start(FjKnownArgument *argument, PyObject *object);

/* Ends the recording of a walk that pushed `arrays` and `objects`. */
void fj_known_end(FjKnownArgument *argument, int matched, PyObject *object,
                  PyObject *const *arrays, Py_ssize_t num_arrays, PyObject *const *objects,
                  Py_ssize_t num_objects);

/* The walk found something that can't be recorded. */
void fj_known_fail(FjKnownArgument *argument);

/* Adds a container, which might not match the node.  `num_arrays` arrays come before it. */
void fj_known_add(FjKnownArgument *argument, const FjStructure *structure, const FjNode *node,
                  PyObject *object, Py_ssize_t num_arrays);

/* Adds a value that was compared with the node's snapshot. */
void fj_known_add_static(FjKnownArgument *argument, const FjStructure *structure,
                         const FjNode *node, PyObject *value);

/* Adds a further occurrence of an object, with its number. */
void fj_known_add_ref(FjKnownArgument *argument, PyObject *object, uint32_t number);
