"""Ahead of time: tracing, lowering, compiling, warming up, saving and loading."""
