"""Pytrees: the registry of node types, filters, and tree functions."""
