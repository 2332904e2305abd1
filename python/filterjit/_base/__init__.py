"""What every other package builds on: JAX's private names, errors, progress."""
