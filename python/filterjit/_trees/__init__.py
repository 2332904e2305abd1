"""Pytrees: the registry of node types, filters, and functions of trees."""
