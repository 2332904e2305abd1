"""What is printed: progress displays, and tables in columns."""
