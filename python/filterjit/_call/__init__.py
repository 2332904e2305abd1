"""A jitted call off the hot path: signatures, compiling, running."""
