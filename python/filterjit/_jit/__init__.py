"""The decorator `filter_jit`, and the methods of a jitted function."""
