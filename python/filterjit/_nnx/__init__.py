"""`filterjit.nnx`: jitted functions that update Variables in their arguments."""
