"""The decorators `filter_jit` and `jit`, and the methods of jitted functions."""
