/* Python formats all errors, notes and reprs: `words` of a Registry (_base/_words.py). */
#pragma once

#include "base/common.h"
#include "structure/registry.h"

/* (P) Calls `words.name(...)`.  Returns a new reference.  `format`, which includes
 * parentheses, and the rest are Py_BuildValue arguments. */
PyObject *fj_words_call(FjRegistry *registry, const char *name, const char *format, ...);

/* Raises a ValueError with `text` (stolen).  NULL passes on an earlier error.  Always -1. */
static inline int
fj_words_raise(PyObject *text)
{
    if (text != NULL) {
        PyErr_SetObject(PyExc_ValueError, text);
        Py_DECREF(text);
    }
    return -1;
}

/* (P) Replaces the `__filterjit_error_context__` of the current exception, if any, with an
 * exception note.  For errors outside the calls of jitted functions. */
void fj_words_note_context(FjRegistry *registry);
