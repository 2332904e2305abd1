"""Modules that every other package uses: JAX's private names, errors, files, progress displays."""
