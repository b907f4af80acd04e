"""The relay."""
