"""Trees with one buffer for all arrays of a dtype: `pack`."""
