/* Tables of the methods of FilterJit and BoundFilterJit that are implemented in Python. */
#ifndef FJ_HOOK_METHOD_H
#define FJ_HOOK_METHOD_H

#include "base/common.h"
#include "base/state.h"

typedef enum {
    /* `instance.name(...)` calls `instance._options.hook(instance, ...)`. */
    FJ_HOOK_OF_OPTIONS,
    /* `instance.name(...)` calls `instance.__func__.hook(instance.__self__, ...)`. */
    FJ_HOOK_OF_FUNCTION
} FjHookReceiver;

/* One method.  The last entry of a table has no name. */
typedef struct {
    const char *name;
    const char *hook; /* the method of the receiver that implements it */
    FjHookReceiver receiver;
    int takes_arguments;   /* other than the instance */
    const char *signature; /* "($self, /, ...)", for inspect.signature */
    const char *doc;
} FjHookMethodDef;

extern PyType_Spec fj_hook_method_spec;

/* Adds the methods of a table to a type that is not in use yet.  0, or -1 with an error. */
int fj_hook_methods_add(FjState *state, PyTypeObject *type, const FjHookMethodDef *table);

#endif
