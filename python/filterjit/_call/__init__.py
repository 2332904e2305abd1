"""The Python part of a jitted call: signatures, caches, misses, errors."""
