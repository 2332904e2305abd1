/* What every file of the core needs: Python.h, the compatibility layer, small macros. */
#ifndef FJ_COMMON_H
#define FJ_COMMON_H

#include "compat.h" /* Python.h */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define FJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define FJ_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define FJ_LIKELY(x) (x)
#define FJ_UNLIKELY(x) (x)
#endif

/* The objects of this extension that other files look into. */
typedef struct FjRegistry FjRegistry;
typedef struct FjNodeKind FjNodeKind;
typedef struct FjStructure FjStructure;

#endif
