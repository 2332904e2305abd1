"""The private names of JAX, Equinox, Flax and penzai, each with a fallback."""
