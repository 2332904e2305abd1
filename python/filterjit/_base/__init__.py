"""Modules that the other packages use: errors, checks, files, the protocols of hooks."""
