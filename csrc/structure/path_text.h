/* The path of a node or of a leaf as text, for error messages. */
#ifndef FJ_PATH_TEXT_H
#define FJ_PATH_TEXT_H

#include "base/common.h"
#include "structure/structure.h"

/* (P) What fj_structure_write_path writes for `path`, a result of fj_structure_path or
 * fj_structure_leaf_path: a new str, or NULL with an error.  Steals `path`; NULL is an error
 * that is passed on. */
static inline PyObject *
fj_path_text(PyObject *path)
{
    PyObject *text = path == NULL ? NULL : fj_structure_write_path(path);
    Py_XDECREF(path);
    return text;
}

#endif
