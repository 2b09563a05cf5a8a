"""Serve our own static files; they are read once."""

import hashlib
import mimetypes
from functools import cache
from pathlib import Path

from aiohttp import web

from hermes import __version__

STATIC = Path(__file__).with_name("static")
_KINDS = {
    ".js": "text/javascript",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
}


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in STATIC.iterdir() if path.is_file()}


@cache
def asset_version() -> str:
    """Return a version that changes with every release and file, so that open pages reload."""
    digest = hashlib.sha256(__version__.encode())
    for name, data in sorted(_files().items()):
        digest.update(name.encode() + data)
    return digest.hexdigest()[:12]


async def serve_static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    data = _files().get(name)
    if data is None:
        raise web.HTTPNotFound
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    guessed = mimetypes.guess_type(name)[0] or "application/octet-stream"
    kind = _KINDS.get(Path(name).suffix, guessed)
    return web.Response(body=data, content_type=kind, headers=headers)
