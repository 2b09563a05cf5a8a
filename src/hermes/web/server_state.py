"""Serve the page and record its address for `hermes dashboard` in another process."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.kit.files import write_atomic
from hermes.kit.ids import process_id, runs_here
from hermes.kit.json_errors import JSON_ERRORS
from hermes.web.logins import Logins
from hermes.web.server import WebServer
from hermes.web.settings import WebSettings


class ServerState(Struct, frozen=True, kw_only=True):
    """`by` is `gateway` or `dashboard`; `holder` identifies the process uniquely."""

    pid: int
    holder: str
    address: str
    by: str

    @property
    def login_page(self) -> str:
        return f"{self.address}/login"


def web_folder(home: Home) -> Path:
    return home.path / "dashboard"


def running_server(home: Home) -> ServerState | None:
    """Return where the page of this home is served now."""
    try:
        data = (web_folder(home) / "state.json").read_bytes()
        record = msgspec.json.decode(data, type=ServerState)
    except (FileNotFoundError, *JSON_ERRORS):
        return None
    return record if runs_here(record.holder) else None


@asynccontextmanager
async def open_server(
    settings: WebSettings, home: Home, clock: Clock, *, by: str
) -> AsyncGenerator[WebServer]:
    """Serve until the end of the block. Raises `ConfigError` if the port cannot be used."""
    folder = web_folder(home)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with WebServer(settings, clock, Logins(folder, clock)) as server:
        record = ServerState(pid=os.getpid(), holder=process_id(), address=server.address, by=by)
        path = folder / "state.json"
        write_atomic(path, msgspec.json.encode(record), mode=0o600)
        try:
            yield server
        finally:
            path.unlink(missing_ok=True)
