/* Matches path patterns with a nondeterministic finite automaton that moves down the tree.
 *
 * State i means that the first i components match the path so far.  A set of states is an
 * integer with one bit per state.  A node's set follows from its parent's set and the key
 * between them.  So each key is compared once for all leaves below it, keys below an empty set
 * aren't compared, and nothing is stored between calls.
 *
 * Python code can run in the function of a glob, in the __str__ of a dict's keys, and in
 * formatting an error (messages.c).  It can't change the Structure. */
#include "tree/pattern.h"

#include "structure/messages.h"

#define MAX_COMPONENTS 62

typedef struct {
    FjStructure *structure;
    PyObject *const *components; /* of a tuple that the caller holds */
    int count;
    /* Per component: an int's value, or the number that a name spells; -1 for other names. */
    Py_ssize_t numbers[MAX_COMPONENTS];
    uint8_t *mask;
    Py_ssize_t leaf;     /* of the next leaf */
    int is_deep;         /* the last component is "deep" */
    int has_match;       /* a leaf has matched */
    uint32_t inner_node; /* index + 1 of the first matching inner node, or 0 */
} PatternRun;

static int
is_deep(PyObject *component)
{
    return component == Py_Ellipsis;
}

/* Returns the number n with str(n) == `text`, or -1 if there is none below 10**9. */
static Py_ssize_t
parse_number(PyObject *text)
{
    Py_ssize_t size = PyUnicode_GET_LENGTH(text), number = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        Py_UCS4 figure = PyUnicode_READ_CHAR(text, i) - '0'; /* huge if it isn't a digit */
        if (figure > 9 || size > 9 || (figure == 0 && i == 0 && size > 1)) {
            return -1;
        }
        number = 10 * number + (Py_ssize_t)figure;
    }
    return size == 0 ? -1 : number;
}

static int
in_slice(PyObject *slice, Py_ssize_t position, Py_ssize_t size)
{
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) {
        return -1;
    }
    Py_ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
    Py_ssize_t offset = position - start;
    return offset % step == 0 && offset / step >= 0 && offset / step < count;
}

/* Matches component `i`, which isn't "deep", with a child's key.  `key` is a field's name, an
 * item's key, or NULL for a sequence's item at `position` of `size`.  1, 0, or -1. */
static int
matches(const PatternRun *m, int i, PyObject *key, Py_ssize_t position, Py_ssize_t size)
{
    PyObject *component = m->components[i];
    Py_ssize_t number = m->numbers[i];
    if (component == Py_None) {
        return 1;
    }
    if (PySlice_Check(component)) {
        return key == NULL ? in_slice(component, position, size) : 0;
    }
    if (PyLong_Check(component)) {
        return key == NULL              ? position == (number < 0 ? number + size : number)
               : PyLong_CheckExact(key) ? PyObject_RichCompareBool(component, key, Py_EQ)
                                        : 0;
    }
    if (PyUnicode_Check(component) && key == NULL) {
        return position == number;
    }
    PyObject *text = key == NULL                 ? PyUnicode_FromFormat("%zd", position)
                     : PyUnicode_CheckExact(key) ? Py_NewRef(key)
                                                 : PyObject_Str(key);
    if (text == NULL) {
        return -1;
    }
    int result = PyUnicode_Check(component)
                     ? text == component || PyUnicode_Compare(text, component) == 0
                     : fj_steal_truth(PyObject_CallOneArg(component, text));
    Py_DECREF(text);
    return result;
}

/* "deep" can match no key at all, so the state before it implies the state after it. */
static uint64_t
add_states_after_deep(const PatternRun *m, uint64_t set)
{
    for (int i = 0; i < m->count; i++) {
        if ((set >> i & 1) && is_deep(m->components[i])) {
            set |= (uint64_t)1 << (i + 1);
        }
    }
    return set;
}

static int
accepts(const PatternRun *m, uint64_t set)
{
    return (int)(set >> m->count & 1);
}

/* Sets `*below` to the states of a child of a node with the states `set`. */
static int
find_states_below(PatternRun *m, const FjChildren *c, uint64_t set, uint64_t *below)
{
    const FjNode *node = &m->structure->nodes[c->parent];
    PyObject *key = NULL;
    int result = 0;
    *below = 0;
    if (fj_code_info[node->code].keys != FJ_KEYS_NUMBERS) {
        key = fj_children_key(c);
        if (key == NULL) {
            return -1;
        }
        if (key == Py_None) {
            Py_DECREF(key);
            *below = set;
            return 0;
        }
    }
    for (int i = 0; result >= 0 && i < m->count; i++) {
        if (!(set >> i & 1)) {
            continue;
        }
        if (is_deep(m->components[i])) {
            *below |= (uint64_t)1 << i;
            continue;
        }
        result =
            matches(m, i, key != NULL && PyTuple_Check(key) ? PyTuple_GET_ITEM(key, 0) : key,
                    c->number, node->arity);
        if (result > 0) {
            *below |= (uint64_t)1 << (i + 1);
        }
    }
    Py_XDECREF(key);
    *below = add_states_after_deep(m, *below);
    return result < 0 ? -1 : 0;
}

static void
match_leaf(PatternRun *m, uint64_t set)
{
    m->mask[m->leaf++] &= (uint8_t)accepts(m, set);
    m->has_match |= accepts(m, set);
}

static int
match_node(PatternRun *m, uint32_t index, uint64_t set)
{
    const FjNode *node = &m->structure->nodes[index];
    if (node->code == FJ_ARRAY) {
        match_leaf(m, set);
        return 0;
    }
    if (m->inner_node == 0 && accepts(m, set) && (m->is_deep || node->arity > 0)) {
        m->inner_node = index + 1;
    }
    if (Py_EnterRecursiveCall(" while matching a path pattern")) {
        return -1;
    }
    int result = 0;
    for (FjChildren c = fj_children_of(m->structure, index);
         result == 0 && fj_children_has(&c); fj_children_next(&c)) {
        uint64_t below = 0;
        if (set != 0) {
            result = find_states_below(m, &c, set, &below);
        }
        if (result == 0) {
            result = match_node(m, c.at, below);
        }
    }
    Py_LeaveRecursiveCall();
    return result;
}

/* Raises a ValueError that names the first matching inner node, if any.  Always -1. */
static int
raise_no_leaf_matches(const PatternRun *m, PyObject *components)
{
    FjStructure *structure = m->structure;
    PyObject *inner = m->inner_node == 0 ? Py_NewRef(Py_None)
                                         : fj_path_of_node(structure, m->inner_node - 1);
    return fj_messages_raise(fj_messages_call(structure->registry, "no_leaf_matches", "(ONO)",
                                              components, inner, structure));
}

int
fj_pattern_match(FjStructure *structure, PyObject *components, int is_strict, uint8_t *mask)
{
    PatternRun m = {.structure = structure,
                    .components = ((PyTupleObject *)components)->ob_item,
                    .mask = mask};
    if (PyTuple_GET_SIZE(components) > MAX_COMPONENTS) {
        PyErr_Format(PyExc_ValueError, "a path pattern of more than %d components",
                     MAX_COMPONENTS);
        return -1;
    }
    for (; m.count < PyTuple_GET_SIZE(components); m.count++) {
        PyObject *component = m.components[m.count];
        m.is_deep = is_deep(component);
        m.numbers[m.count] = -1;
        if (PyUnicode_Check(component)) {
            m.numbers[m.count] = parse_number(component);
        }
        else if (PyLong_Check(component)) { /* clipped, like indices */
            m.numbers[m.count] = PyNumber_AsSsize_t(component, NULL);
        }
        else if (component != Py_None && !m.is_deep && !PySlice_Check(component) &&
                 !PyCallable_Check(component)) {
            PyErr_Format(PyExc_TypeError, "not a component of a path pattern: %R", component);
            return -1;
        }
    }
    if (match_node(&m, 0, add_states_after_deep(&m, 1)) < 0) {
        return -1;
    }
    return is_strict && !m.has_match && !(m.is_deep && m.inner_node != 0)
               ? raise_no_leaf_matches(&m, components)
               : 0;
}
