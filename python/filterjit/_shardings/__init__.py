"""Shardings for whole trees: meshes and specs, rules by path, placing."""
