"""Decoders of HTTP/1.1, SSE, NDJSON and WebSocket bytes, and the providers' dialects. Sans-I/O."""
