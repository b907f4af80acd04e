"""The calling process and its code."""
