"""Printing: progress displays, and tables in columns."""
