/* Remembers the arguments that matched a Structure.  A large argument that is the same object
 * as before, and unchanged, isn't walked.  The head of known.c shows that this is exact
 * although it holds no references.
 *
 * Nothing here runs Python code or fails: without memory, nothing is remembered. */
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

/* Called after a borrowed match of an argument without a valid record.  If it has been the
 * same object for some calls, records it in a second walk. */
void fj_known_note(FjKnownArgument *argument, const FjStructure *structure, const FjNode *node,
                   PyObject *object);
