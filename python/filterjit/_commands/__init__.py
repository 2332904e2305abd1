"""What the commands of ``python -m filterjit`` do; their options are in `__main__`."""
