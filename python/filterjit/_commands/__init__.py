"""The commands of ``python -m filterjit``. Their options are in `__main__`."""
