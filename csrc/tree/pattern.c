/* Matches path patterns: a nondeterministic finite automaton that moves down the tree.
 *
 * State i means that the first i components match the path so far; a set of states is an
 * integer with a bit for each state.  The set of a node follows from the set of its parent and
 * from the key between them.  So each key is looked at once for all leaves below it, the keys
 * below a node with an empty set are not looked at, and nothing is stored between calls.
 *
 * Python code can run in `matches` of a glob, in the __str__ of a dict's keys, and in the repr
 * of a key or a component in an error message, which words.c makes. The Structure cannot
 * change meanwhile.
 */
#include "tree/pattern.h"

#include "structure/children.h"
#include "structure/words.h"

#define MAX_COMPONENTS 62

typedef enum { ANY, DEEP, NAME, GLOB, INDEX, SLICE } Operation;

static const char *const operation_names[] = {"any", "deep", "name", "glob", "index", "slice"};

typedef struct {
    Operation operation;
    PyObject *detail;  /* name, glob, index: what follows the operation; borrowed */
    Py_ssize_t number; /* name: the number that its text spells, or -1; index: the index */
    PyObject *slice;   /* slice: a slice object; owned */
} Component;

typedef struct {
    FjStructure *structure;
    Component components[MAX_COMPONENTS];
    int count;
    uint8_t *taken;
    Py_ssize_t leaf;     /* index of the next leaf */
    int is_deep;         /* whether the last component is "deep" */
    int has_match;       /* whether a leaf has matched */
    uint32_t inner_node; /* 1 + index of the first inner node that matched, or 0; with
                            `is_deep` this may be one without children */
} PatternRun;

/* ---- the components ---- */

/* The number n for which str(n) is `text`, or -1 if there is none below 10**9. */
static Py_ssize_t
parse_number(PyObject *text)
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

/* The item after the operation in a component of `size` items, borrowed; NULL with an error.
 */
static PyObject *
get_detail(PyObject *parts, Py_ssize_t size)
{
    if (PyTuple_GET_SIZE(parts) != size) {
        PyErr_SetString(PyExc_ValueError, "a component of a path pattern has the wrong size");
        return NULL;
    }
    return PyTuple_GET_ITEM(parts, 1);
}

static int
decode_component(Component *component, PyObject *parts)
{
    PyObject *name = NULL;
    if (!PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) < 1 ||
        !PyUnicode_Check(name = PyTuple_GET_ITEM(parts, 0))) {
        PyErr_SetString(PyExc_TypeError,
                        "a component of a path pattern must be a tuple (operation, ...)");
        return -1;
    }
    int operation = ANY;
    while (operation <= SLICE &&
           PyUnicode_CompareWithASCIIString(name, operation_names[operation]) != 0) {
        operation++;
    }
    *component = (Component){.operation = (Operation)operation, .number = -1};
    switch (operation) {
    case ANY:
    case DEEP:
        return 0;
    case NAME:
        component->detail = get_detail(parts, 2);
        if (component->detail == NULL || !PyUnicode_Check(component->detail)) {
            break;
        }
        component->number = parse_number(component->detail);
        return 0;
    case GLOB:
        component->detail = get_detail(parts, 2);
        return component->detail == NULL ? -1 : 0;
    case INDEX:
        component->detail = get_detail(parts, 2);
        /* An int that is too large is clipped, so it is no position in a sequence; it can
         * still be the key of a dict. */
        component->number =
            component->detail == NULL ? -1 : PyNumber_AsSsize_t(component->detail, NULL);
        return component->number == -1 && PyErr_Occurred() ? -1 : 0;
    case SLICE:
        component->slice =
            get_detail(parts, 4) == NULL
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

/* Adds to each state before a "deep" the state after it, since a "deep" may match no key. */
static uint64_t
add_states_after_deep(const PatternRun *m, uint64_t set)
{
    for (int i = 0; i < m->count; i++) {
        if ((set >> i & 1) && m->components[i].operation == DEEP) {
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

/* Whether a glob matches `text`, which is stolen; NULL is an error that is passed on.  1, 0,
 * or -1 with an error. */
static int
matches_glob(const Component *component, PyObject *text)
{
    int matches =
        text == NULL ? -1 : fj_take_truth(PyObject_CallOneArg(component->detail, text));
    Py_XDECREF(text);
    return matches;
}

/* Whether a component other than "deep" matches an item of a sequence.  1, 0, or -1 with an
 * error. */
static int
matches_position(const Component *component, Py_ssize_t position, Py_ssize_t size)
{
    switch (component->operation) {
    case NAME:
        return component->number == position;
    case INDEX:
        return position ==
               (component->number < 0 ? component->number + size : component->number);
    case SLICE:
        return in_slice(component, position, size);
    case GLOB:
        return matches_glob(component, PyUnicode_FromFormat("%zd", position));
    default:
        return 1;
    }
}

/* Whether a component other than "deep" matches any other key: the name of a field, or the key
 * of an item.  1, 0, or -1 with an error. */
static int
matches_key(const Component *component, PyObject *key)
{
    if (component->operation == INDEX) {
        return PyLong_CheckExact(key) ? PyObject_RichCompareBool(component->detail, key, Py_EQ)
                                      : 0;
    }
    if (component->operation != NAME && component->operation != GLOB) {
        return component->operation != SLICE;
    }
    PyObject *text = PyUnicode_CheckExact(key) ? Py_NewRef(key) : PyObject_Str(key);
    if (text == NULL) {
        return -1;
    }
    if (component->operation == GLOB) {
        return matches_glob(component, text);
    }
    int matches = text == component->detail || PyUnicode_Compare(text, component->detail) == 0;
    Py_DECREF(text);
    return matches;
}

static int
is_sequence(const FjNode *node)
{
    return fj_code_info[node->code].keys == FJ_KEYS_NUMBERS;
}

/* Sets `*below` to the states of a child of a node that has the states `set`.  0, or -1 with
 * an error. */
static int
find_states_below(PatternRun *m, const FjChildren *c, uint64_t set, uint64_t *below)
{
    const FjNode *node = &m->structure->nodes[c->parent];
    PyObject *key = NULL;
    int result = 0;
    if (!is_sequence(node)) {
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
    *below = 0;
    for (int i = 0; result >= 0 && i < m->count; i++) {
        const Component *component = &m->components[i];
        if (!(set >> i & 1)) {
            continue;
        }
        if (component->operation == DEEP) {
            *below |= (uint64_t)1 << i;
            continue;
        }
        if (component->operation == ANY) {
            result = 1;
        }
        else if (is_sequence(node)) {
            result = matches_position(component, c->number, node->arity);
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
    *below = add_states_after_deep(m, *below);
    return result < 0 ? -1 : 0;
}

static void
match_leaf(PatternRun *m, uint64_t set)
{
    m->taken[m->leaf++] = (uint8_t)accepts(m, set);
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
        if (result == 0 && fj_children_is_leaf(&c)) {
            match_leaf(m, below);
        }
        else if (result == 0) {
            result = match_node(m, c.at, below);
        }
    }
    Py_LeaveRecursiveCall();
    return result;
}

/* Raises a ValueError: no leaf matched. It names the first inner node that did, if one did. */
static void
raise_no_leaf_matches(PatternRun *m, PyObject *components)
{
    FjStructure *structure = m->structure;
    PyObject *inner = m->inner_node == 0 ? Py_NewRef(Py_None)
                                         : fj_path_of_node(structure, m->inner_node - 1);
    PyObject *text = inner == NULL
                         ? NULL
                         : fj_words_call(structure->registry, "no_leaf_matches", "(OOO)",
                                         components, inner, (PyObject *)structure);
    Py_XDECREF(inner);
    if (text != NULL) {
        PyErr_SetObject(PyExc_ValueError, text);
        Py_DECREF(text);
    }
}

int
fj_pattern_match(FjStructure *structure, PyObject *components, int is_strict, uint8_t *taken)
{
    int result = -1;
    PatternRun m = {.structure = structure, .taken = taken};
    if (PyTuple_GET_SIZE(components) > MAX_COMPONENTS) {
        PyErr_Format(PyExc_ValueError, "a path pattern of more than %d components",
                     MAX_COMPONENTS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(components); i++) {
        if (decode_component(&m.components[m.count], PyTuple_GET_ITEM(components, i)) < 0) {
            goto done;
        }
        m.count++;
    }
    m.is_deep = m.count > 0 && m.components[m.count - 1].operation == DEEP;
    result = match_node(&m, 0, add_states_after_deep(&m, 1));
    int is_found = m.has_match || (m.is_deep && m.inner_node != 0);
    if (result == 0 && is_strict && !is_found) {
        raise_no_leaf_matches(&m, components);
        result = -1;
    }
done:
    for (int i = 0; i < m.count; i++) {
        Py_XDECREF(m.components[i].slice);
    }
    return result;
}
