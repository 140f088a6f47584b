"""The built pages: read and compressed once, served from memory. `make console` builds them anew."""

from __future__ import annotations

import gzip
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from hanse_fabric.errors import ErrorCode, HanseError

BUNDLE = Path(__file__).parent / "bundle"
_FOREVER = "public, max-age=31536000, immutable"
_SMALLEST = 1024
"""Bytes from which a file is worth compressing."""
_TEXT = ("text/", "application/javascript", "application/json", "image/svg+xml")


@dataclass(frozen=True, slots=True)
class File:
    """A file of the bundle. `packed`: gzip; None where that does not pay."""

    body: bytes
    packed: bytes | None
    kind: str
    caching: str

    def answer(self, request: web.Request) -> web.Response:
        """The file, compressed for who takes that."""
        headers = {"Cache-Control": self.caching, "Vary": "Accept-Encoding"}
        body = self.body
        if self.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"], body = "gzip", self.packed
        charset = "utf-8" if self.kind.startswith("text/") else None
        return web.Response(body=body, content_type=self.kind, charset=charset, headers=headers)


def read_bundle(folder: Path = BUNDLE) -> dict[str, File]:
    """The files by their paths, such as `/assets/index-BMzKCE2Y.js`.

    Those in `assets/` have a hash of their content in their names, so browsers keep them; the page itself is asked
    for every time.

    Raises:
        HanseError: INVALID_INPUT where there is no built page.
    """
    if not (folder / "index.html").is_file():
        raise HanseError(ErrorCode.INVALID_INPUT, f"{folder}: there is no built console", hint="make console")
    return {
        f"/{path.relative_to(folder).as_posix()}": _read(path, kept=path.parent.name == "assets")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _read(path: Path, *, kept: bool) -> File:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    pays = kind.startswith(_TEXT) and len(body) >= _SMALLEST
    packed = gzip.compress(body, 9, mtime=0) if pays else None
    return File(body, packed, kind, _FOREVER if kept else "no-cache")
