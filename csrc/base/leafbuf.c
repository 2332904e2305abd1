/* The functions of leafbuf.h that aren't inlined.  fj_leafbuf_truncate and fj_leafbuf_clear
 * can run finalizers.  Both remove each reference from the buffer before dropping it. */
#include "base/leafbuf.h"

int
fj_leafbuf_grow(FjLeafBuf *buf, Py_ssize_t more)
{
    const Py_ssize_t most = PY_SSIZE_T_MAX / 4 / (Py_ssize_t)sizeof(PyObject *);
    if (buf->capacity > most || more > most) {
        return fj_raise_no_memory();
    }
    Py_ssize_t capacity = buf->capacity * 2;
    if (capacity < buf->count + more) {
        capacity = buf->count + more;
    }
    PyObject **items = PyMem_Malloc((size_t)(capacity + 1) * sizeof(PyObject *));
    if (items == NULL) {
        return fj_raise_no_memory();
    }
    memcpy(items + 1, buf->items, (size_t)buf->count * sizeof(PyObject *));
    if (buf->items != buf->stack + 1) {
        PyMem_Free(buf->items - 1);
    }
    buf->items = items + 1;
    buf->capacity = capacity;
    return 0;
}

void
fj_leafbuf_truncate(FjLeafBuf *buf, Py_ssize_t count)
{
    while (buf->count > count) {
        buf->count--;
        Py_DECREF(buf->items[buf->count]);
    }
}

void
fj_leafbuf_clear(FjLeafBuf *buf)
{
    fj_leafbuf_truncate(buf, 0);
    if (buf->items != buf->stack + 1) {
        PyMem_Free(buf->items - 1);
    }
    fj_leafbuf_init(buf, buf->stack, buf->size);
}

int
fj_leafbuf_extend(FjLeafBuf *buf, PyObject *const *items, Py_ssize_t count)
{
    if (fj_leafbuf_reserve(buf, count) < 0) {
        return -1;
    }
    PyObject **place = buf->items + buf->count;
    for (Py_ssize_t i = 0; i < count; i++) {
        place[i] = Py_NewRef(items[i]);
    }
    buf->count += count;
    return 0;
}
