"""Pure cores: no clock, socket, file, thread or event loop. Decisions take `now_ns` and return values."""
