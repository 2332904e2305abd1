"""Shared modules: errors, checks, files, locks, the hooks that C calls."""
