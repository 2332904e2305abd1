"""Shardings for whole trees: specs, rules by path, and placing."""
