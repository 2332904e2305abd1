/* The table of readers.  Python code can run in finalizers. */
#include "walk/kinds.h"

const FjReader fj_no_reader = {NULL, NULL};

#define READER_OF_ROW(code, name, value, keys, read, reader) [code] = &(reader),
const FjReader *const fj_readers[FJ_CODE_COUNT] = {FJ_CODES(READER_OF_ROW)};

void
fj_contents_clear(FjContents *contents)
{
    PyObject **children = contents->children;
    if (contents->owner == NULL && children != NULL) {
        for (Py_ssize_t i = 0; i < contents->count; i++) {
            Py_XDECREF(children[i]);
        }
        fj_scratch_pop(contents->scratch, children);
    }
    Py_CLEAR(contents->owner);
    Py_CLEAR(contents->aux);
    Py_CLEAR(contents->aux_data);
    contents->children = NULL;
    contents->count = 0;
}

int
fj_contents_changed(PyObject *object)
{
    PyErr_Format(PyExc_RuntimeError, "`%.200s` changed while it was flattened",
                 Py_TYPE(object)->tp_name);
    return -1;
}
