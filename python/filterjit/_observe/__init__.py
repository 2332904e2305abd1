"""Observation of jitted functions: why a call compiles again, and how long each stage takes.

No code in this package runs on a hit.
"""
