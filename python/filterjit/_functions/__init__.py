"""Descriptions of functions: their code, and the values they hold."""
