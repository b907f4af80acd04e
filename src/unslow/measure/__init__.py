"""Live and recorded measurement."""
