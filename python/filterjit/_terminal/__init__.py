"""Progress displays and tables."""
