"""The decorator, and all that a jitted function can be asked."""
