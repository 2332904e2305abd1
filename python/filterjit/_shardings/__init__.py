"""Shardings for whole trees: meshes, specs, rules by path, and placing."""
