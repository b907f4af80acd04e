"""The embedded model, and adapters to engines."""
