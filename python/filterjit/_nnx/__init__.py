"""`filterjit.nnx`: jitted functions that update the Variables in their arguments."""
