/* Python formats all messages: the object `words` of a Registry (_base/_words.py) makes the
 * texts of errors, notes and reprs.
 *
 * Functions marked (P) run Python code.
 */
#pragma once

#include "base/common.h"
#include "structure/registry.h"

/* (P) What `words.name(...)` returns: a new reference, or NULL with an error.  `format`, which
 * is in parentheses, and what follows are as Py_BuildValue takes them. */
PyObject *fj_words_call(FjRegistry *registry, const char *name, const char *format, ...);

/* Raises a ValueError with `text`, which is stolen; NULL is an error that is passed on. Always
 * -1. */
static inline int
fj_words_raise(PyObject *text)
{
    if (text != NULL) {
        PyErr_SetObject(PyExc_ValueError, text);
        Py_DECREF(text);
    }
    return -1;
}

/* (P) Replaces the `__filterjit_error_context__` of the exception that is set, if it has one,
 * by an exception note.  For errors that are not raised by a call of a jitted function. */
void fj_words_note_context(FjRegistry *registry);
