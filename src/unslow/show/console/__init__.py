"""The console page's built bundle and its payloads."""
