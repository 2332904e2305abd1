/* Path patterns as a machine with a set of states, which goes down the tree with the walk.
 *
 * State i means that the first i components have matched the path so far; a set of states is a
 * word of bits.  A node's set comes from its parent's and the key between them, so each key
 * is looked at once for all the leaves below it, a subtree that cannot match any more is
 * passed without looking at its keys, and nothing needs to be remembered from call to call.
 *
 * Python code can run in `matches` of a glob, in the __str__ of a dict's keys, and in a named
 * tuple's `_fields`.  A Structure does not change meanwhile.
 */
#include "tree/pattern.h"

#define MOST_COMPONENTS 62

typedef enum { ANY, DEEP, NAME, GLOB, INDEX, SLICE } Op;

static const char *const op_names[] = {"any", "deep", "name", "glob", "index", "slice"};

typedef struct {
    Op op;
    PyObject *detail;  /* borrowed: the text, or the callable */
    Py_ssize_t number; /* of an index */
    Py_ssize_t digits; /* name: the number that its text is, -1 if it is none */
    PyObject *slice;   /* owned */
} Component;

typedef struct {
    FjStructure *structure;
    Component components[MOST_COMPONENTS];
    int count;
    uint32_t at;
    uint8_t *taken;
    Py_ssize_t leaf;
    int matched;    /* some leaf */
    uint32_t inner; /* the first inner node that matched, plus 1; 0 for none */
} Match;

/* ---- the components ---- */

/* The number that a text of digits writes, as `str` does; -1 where it is none. */
static Py_ssize_t
number_of(PyObject *text)
{
    Py_ssize_t size, number = 0;
    const char *digits = PyUnicode_AsUTF8AndSize(text, &size);
    if (digits == NULL) {
        PyErr_Clear(); /* lone surrogates */
        return -1;
    }
    if (size == 0 || size > 9 || (digits[0] == '0' && size > 1)) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        if (digits[i] < '0' || digits[i] > '9') {
            return -1;
        }
        number = 10 * number + digits[i] - '0';
    }
    return number;
}

/* The detail of a component, borrowed; NULL with an error. */
static PyObject *
detail_of(PyObject *parts, Py_ssize_t size)
{
    if (PyTuple_GET_SIZE(parts) != size) {
        PyErr_SetString(PyExc_ValueError, "a component of a path pattern has the wrong size");
        return NULL;
    }
    return PyTuple_GET_ITEM(parts, 1);
}

static int
read_component(Component *component, PyObject *parts)
{
    PyObject *name = NULL;
    if (!PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) < 1 ||
        !PyUnicode_Check(name = PyTuple_GET_ITEM(parts, 0))) {
        PyErr_SetString(PyExc_TypeError,
                        "a component of a path pattern is (name, details...)");
        return -1;
    }
    int op = ANY;
    while (op <= SLICE && PyUnicode_CompareWithASCIIString(name, op_names[op]) != 0) {
        op++;
    }
    *component = (Component){.op = (Op)op, .digits = -1};
    switch (op) {
    case ANY:
    case DEEP:
        return 0;
    case NAME:
        component->detail = detail_of(parts, 2);
        if (component->detail == NULL || !PyUnicode_Check(component->detail)) {
            break;
        }
        component->digits = number_of(component->detail);
        return 0;
    case GLOB:
        component->detail = detail_of(parts, 2);
        return component->detail == NULL ? -1 : 0;
    case INDEX:
        component->detail = detail_of(parts, 2);
        /* One that is too large is clipped, and is no position; a dict may have it as a key.
         */
        component->number =
            component->detail == NULL ? -1 : PyNumber_AsSsize_t(component->detail, NULL);
        return component->number == -1 && PyErr_Occurred() ? -1 : 0;
    case SLICE:
        component->slice =
            detail_of(parts, 4) == NULL
                ? NULL
                : PySlice_New(PyTuple_GET_ITEM(parts, 1), PyTuple_GET_ITEM(parts, 2),
                              PyTuple_GET_ITEM(parts, 3));
        return component->slice == NULL ? -1 : 0;
    default:
        break;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "not a component of a path pattern: %R", parts);
    }
    return -1;
}

/* ---- the machine ---- */

/* A "deep" may match no key at all, so the state before it is also the one after it. */
static uint64_t
close_set(const Match *m, uint64_t set)
{
    for (int i = 0; i < m->count; i++) {
        if ((set >> i & 1) && m->components[i].op == DEEP) {
            set |= (uint64_t)1 << (i + 1);
        }
    }
    return set;
}

static int
accepts(const Match *m, uint64_t set)
{
    return (int)(set >> m->count & 1);
}

static int
in_slice(const Component *component, Py_ssize_t position, Py_ssize_t size)
{
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(component->slice, &start, &stop, &step) < 0) {
        return -1;
    }
    Py_ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
    Py_ssize_t offset = position - start;
    return offset % step == 0 && offset / step >= 0 && offset / step < count;
}

/* Whether a component matches an item of a sequence.  1, 0, -1 with an error. */
static int
matches_position(const Component *component, Py_ssize_t position, Py_ssize_t size)
{
    switch (component->op) {
    case NAME:
        return component->digits == position;
    case INDEX:
        return position ==
               (component->number < 0 ? component->number + size : component->number);
    case SLICE:
        return in_slice(component, position, size);
    case GLOB: {
        PyObject *text = PyUnicode_FromFormat("%zd", position);
        PyObject *answer = text == NULL ? NULL : PyObject_CallOneArg(component->detail, text);
        int matches = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(text);
        Py_XDECREF(answer);
        return matches;
    }
    default:
        return 1;
    }
}

/* The same for any other key: `key` is the name of a field, or the key of an item. */
static int
matches_key(const Component *component, PyObject *key)
{
    int matches = -1;
    if (component->op == INDEX) {
        return PyLong_CheckExact(key) ? PyObject_RichCompareBool(component->detail, key, Py_EQ)
                                      : 0;
    }
    if (component->op != NAME && component->op != GLOB) {
        return component->op != SLICE;
    }
    PyObject *text = PyUnicode_CheckExact(key) ? Py_NewRef(key) : PyObject_Str(key);
    if (text == NULL) {
        return -1;
    }
    if (component->op == NAME) {
        matches = text == component->detail || PyUnicode_Compare(text, component->detail) == 0;
    }
    else {
        PyObject *answer = PyObject_CallOneArg(component->detail, text);
        matches = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
    }
    Py_DECREF(text);
    return matches;
}

static int
is_sequence(const FjNode *node)
{
    return node->code == FJ_TUPLE || node->code == FJ_LIST;
}

/* The set of states below child `child` of the node at `index`.  0, or -1 with an error. */
static int
step(Match *m, uint32_t index, uint32_t child, uint64_t set, uint64_t *below)
{
    const FjNode *node = &m->structure->nodes[index];
    PyObject *key = NULL;
    int result = 0;
    *below = 0;
    for (int i = 0; result >= 0 && i < m->count; i++) {
        const Component *component = &m->components[i];
        if (!(set >> i & 1)) {
            continue;
        }
        if (component->op == DEEP) {
            *below |= (uint64_t)1 << i;
            continue;
        }
        if (component->op == ANY) {
            result = 1;
        }
        else if (is_sequence(node)) {
            result = matches_position(component, child, node->arity);
        }
        else if (key == NULL && (key = fj_structure_key(m->structure, index, child)) == NULL) {
            result = -1;
        }
        else {
            result =
                matches_key(component, PyTuple_Check(key) ? PyTuple_GET_ITEM(key, 0) : key);
        }
        if (result > 0) {
            *below |= (uint64_t)1 << (i + 1);
        }
    }
    Py_XDECREF(key);
    *below = close_set(m, *below);
    return result < 0 ? -1 : 0;
}

static void
match_leaf(Match *m, uint64_t set)
{
    m->taken[m->leaf++] = (uint8_t)accepts(m, set);
    m->matched |= accepts(m, set);
}

static int
match_node(Match *m, uint64_t set)
{
    uint32_t index = m->at++;
    const FjNode *node = &m->structure->nodes[index];
    if (node->code == FJ_ARRAY) {
        match_leaf(m, set);
        return 0;
    }
    if (m->inner == 0 && accepts(m, set) && node->arity > 0) {
        m->inner = index + 1;
    }
    if (Py_EnterRecursiveCall(" while matching a path pattern")) {
        return -1;
    }
    int result = 0;
    for (uint32_t child = 0; result == 0 && child < node->arity; child++) {
        uint64_t below = 0;
        if (set != 0) {
            result = step(m, index, child, set, &below);
        }
        if (result == 0 && node->flags & FJ_NODE_LEAVES) {
            match_leaf(m, below);
        }
        else if (result == 0) {
            result = match_node(m, below);
        }
    }
    Py_LeaveRecursiveCall();
    return result;
}

static void
complain(Match *m)
{
    PyObject *path = fj_structure_path(m->structure, m->inner - 1);
    PyObject *text = path == NULL ? NULL : fj_structure_write_path(path);
    if (text != NULL) {
        PyErr_Format(
            PyExc_ValueError,
            "a path pattern takes no leaf, but %U, which is a node: for what lies below "
            "it, add `.**` to the pattern",
            text);
    }
    Py_XDECREF(path);
    Py_XDECREF(text);
}

int
fj_pattern_match(FjStructure *structure, PyObject *components, uint8_t *taken)
{
    int result = -1;
    Match m = {.structure = structure, .taken = taken};
    if (PyTuple_GET_SIZE(components) > MOST_COMPONENTS) {
        PyErr_Format(PyExc_ValueError, "a path pattern of more than %d components",
                     MOST_COMPONENTS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(components); i++) {
        if (read_component(&m.components[m.count], PyTuple_GET_ITEM(components, i)) < 0) {
            goto done;
        }
        m.count++;
    }
    result = match_node(&m, close_set(&m, 1));
    int is_deep = m.count > 0 && m.components[m.count - 1].op == DEEP;
    if (result == 0 && !m.matched && m.inner != 0 && !is_deep) {
        complain(&m);
        result = -1;
    }
done:
    for (int i = 0; i < m.count; i++) {
        Py_XDECREF(m.components[i].slice);
    }
    return result;
}
