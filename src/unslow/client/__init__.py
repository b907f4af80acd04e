"""One-line additions for Python callers."""
