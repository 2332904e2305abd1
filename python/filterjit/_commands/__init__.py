"""The commands of ``python -m filterjit``. `__main__` defines their options."""
