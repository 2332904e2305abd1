"""What a jitted call needs besides the C core: signatures, compiling, errors, running."""
