"""Modules that every other package uses: errors, checks, files, the protocols of hooks."""
