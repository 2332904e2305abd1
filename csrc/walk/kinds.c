/* The table of readers.  Python code can run in finalizers. */
#include "walk/kinds.h"

const FjReader fj_no_reader = {NULL, NULL};

#define READER_OF_ROW(code, name, value, keys, reader) [code] = &(reader),
const FjReader *const fj_readers[FJ_CODE_COUNT] = {FJ_CODES(READER_OF_ROW)};

int
fj_contents_changed(PyObject *object)
{
    PyErr_Format(PyExc_RuntimeError, "`%.200s` changed while it was flattened",
                 Py_TYPE(object)->tp_name);
    return -1;
}
