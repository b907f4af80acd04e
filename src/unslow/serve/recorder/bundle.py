"""The page's files, served from the installed package."""

from __future__ import annotations

import mimetypes
from importlib import resources
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from unslow.serve.recorder.guard import error_answer

TYPES = {
    ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".html": "text/html",
    ".svg": "image/svg+xml", ".wasm": "application/wasm", ".json": "application/json", ".map": "application/json",
    ".woff2": "font/woff2", ".png": "image/png", ".ico": "image/x-icon",
}  # fmt: skip
"""By suffix, so that the system's own table cannot change what the page gets."""


class Bundle:
    """The ASGI app of the page: `index.html` at `/`, its files beside it, nothing outside their folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = (folder or Path(str(resources.files("unslow.show.console"))) / "static").resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"allow": "GET, HEAD"})
        name = str(scope["path"]).lstrip("/") or "index.html"
        file = self._file(name)
        if file is not None:
            return FileResponse(file, media_type=TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0])
        if name == "index.html":
            return error_answer(503, "no_page", "this build has no console page; the API works: see /openapi.json")
        raise HTTPException(404)

    def _file(self, name: str) -> Path | None:
        if "\0" in name or len(name) > 255:
            return None
        file = (self._folder / name).resolve()
        return file if file.is_relative_to(self._folder) and file.is_file() else None
