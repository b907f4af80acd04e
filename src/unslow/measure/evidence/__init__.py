"""Readers of what other tools recorded."""
