/* Python formats errors, notes and reprs: `messages` of a Registry (_base/_messages.py). */
#pragma once

#include "base/common.h"
#include "structure/registry.h"

/* (P) Calls `messages.name(...)`.  Returns a new reference.  `format`, which includes
 * parentheses, and the rest are Py_BuildValue arguments. */
PyObject *fj_messages_call(FjRegistry *registry, const char *name, const char *format, ...);

/* Raises a ValueError with `text` (stolen).  NULL passes on an earlier error.  Always -1. */
static inline int
fj_messages_raise(PyObject *text)
{
    if (text != NULL) {
        PyErr_SetObject(PyExc_ValueError, text);
        Py_DECREF(text);
    }
    return -1;
}

/* (P) Replaces the `__filterjit_error_context__` of the current exception, if any, with an
 * exception note.  For errors outside the calls of jitted functions. */
void fj_messages_note_context(FjRegistry *registry);
