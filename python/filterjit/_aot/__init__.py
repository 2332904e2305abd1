"""Ahead of time: stages, warming up, saving and loading."""
