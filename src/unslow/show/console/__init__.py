"""The console page's built bundle.

`static/` holds what `web/` builds; the recorder serves it. No file of it names another host, and none needs an inline
script or style, so the page runs under `default-src 'self'`.
"""

from __future__ import annotations

from importlib import resources

FILES = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "mark.svg": "image/svg+xml",
}
"""Every file of the page and its content type."""


def read(name: str) -> bytes:
    """A file of the page. Raises FileNotFoundError for a name that is not in `FILES`."""
    if name not in FILES:
        raise FileNotFoundError(name)
    return (resources.files(__name__) / "static" / name).read_bytes()
