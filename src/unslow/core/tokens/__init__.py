"""Offline token counts, and where each count came from."""
