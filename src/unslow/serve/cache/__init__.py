"""Stores for answers."""
