"""The Python part of a jitted call: signatures, compiling, errors, running."""
