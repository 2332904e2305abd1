"""The description of functions: their code, and what they hold."""
