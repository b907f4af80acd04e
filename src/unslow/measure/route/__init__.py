"""The path to an endpoint."""
