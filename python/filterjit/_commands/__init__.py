"""The commands of ``python -m filterjit``."""
