"""What a pytree is to the C core, and trees without a call."""
