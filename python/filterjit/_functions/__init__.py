"""Functions and classes described by what they do."""
