"""The private names of JAX, Equinox and Flax, each with a fallback."""
