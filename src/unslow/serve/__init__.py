"""What runs for long: gateway, recorder, engine, caches."""
