"""Requests of clients and what their answers must contain, to be sent again by tests."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

RECORDED = Path(__file__).parent


class Exchange(Struct, kw_only=True):
    """One request. `has` are paths of fields and `events` names of events that the client reads."""

    method: str
    path: str
    status: int
    headers: dict[str, str] = {}
    body: Any = None
    case: str = ""
    has: list[str] = []
    events: list[str] = []

    @property
    def data(self) -> bytes | None:
        return None if self.body is None else msgspec.json.encode(self.body)


def load_exchanges(client: str) -> list[Exchange]:
    return msgspec.json.decode((RECORDED / f"{client}.json").read_bytes(), type=list[Exchange])


def check_exchange(exchange: Exchange, status: int, body: bytes) -> str:
    """Return what is wrong with the answer, or ""."""
    sent = f"{exchange.method} {exchange.path}"
    if status != exchange.status:
        return f"{sent}: status {status} instead of {exchange.status}: {body[:300]!r}"
    text = body.decode("utf-8", "replace")
    missing = [name for name in exchange.events if f"event: {name}\n" not in text]
    missing += [path for path in exchange.has if not _has(body, path)]
    return f"{sent}: no {', '.join(missing)} in {text[:300]!r}" if missing else ""


def _has(body: bytes, path: str) -> bool:
    value = msgspec.json.decode(body)
    for name in path.split("."):
        if isinstance(value, list):
            value = value[int(name)] if int(name) < len(value) else None
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return False
    return value is not None
