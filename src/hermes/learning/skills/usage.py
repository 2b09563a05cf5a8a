"""Record how often each skill was viewed, used and changed."""

import fcntl
import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.files import keep_aside, read_regular_file, write_atomic
from hermes.kit.json_errors import JSON_ERRORS

log = logging.getLogger(__name__)

USAGE_FILE = ".usage.json"
BY_AGENT = "agent"
INSTALLED = "installed"
_MAX_BYTES = 8_000_000


class SkillUsage(Struct, frozen=True, kw_only=True):
    """Usage of one skill. `created_by` is `agent` for skills it wrote itself."""

    created_at: datetime | None = None
    created_by: str = ""
    last_viewed_at: datetime | None = None
    last_used_at: datetime | None = None
    last_patched_at: datetime | None = None
    view_count: int = 0
    use_count: int = 0
    patch_count: int = 0
    pinned: bool = False
    state: str = "active"
    archived_at: datetime | None = None

    def labels(self, *, builtin: bool = False) -> tuple[str, ...]:
        """Labels of an existing skill for people: its origin and state."""
        labels = {
            "built in": builtin,
            "by the agent": self.created_by == BY_AGENT,
            "installed": self.created_by == INSTALLED,
            "pinned": self.pinned,
            "stale": self.state == "stale",
        }
        return tuple(label for label, applies in labels.items() if applies)


class SkillUsageLog:
    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def records(self) -> dict[str, SkillUsage]:
        """Unreadable data counts as empty, but is not overwritten."""
        return dict(_decode(self._read()))

    def get(self, name: str) -> SkillUsage:
        return self.records().get(name, SkillUsage())

    def viewed(self, name: str) -> None:
        self._change(name, count="view_count", last_viewed_at=self._clock.now())

    def used(self, name: str) -> None:
        self._change(name, count="use_count", last_used_at=self._clock.now(), state="active")

    def patched(self, name: str) -> None:
        self._change(name, count="patch_count", last_patched_at=self._clock.now())

    def created(self, name: str, by: str) -> None:
        self._change(name, created_at=self._clock.now(), created_by=by)

    def pin(self, name: str, *, pinned: bool) -> None:
        self._change(name, pinned=pinned)

    def mark(self, name: str, state: str) -> None:
        at = self._clock.now() if state == "archived" else None
        self._change(name, state=state, archived_at=at)

    def _change(self, name: str, *, count: str = "", **fields: object) -> None:
        """Set these fields and increment a counter.

        Raises `OSError` when the file exists but cannot be read; it is not overwritten.
        """
        with self._locked():
            data = self._read_or_reset()
            records = _read_mapping(data) or {}
            usage = _decode(data).get(name, SkillUsage())
            if count:
                fields[count] = getattr(usage, count) + 1
            # Fields written by other programs are kept.
            changed = msgspec.to_builtins(structs.replace(usage, **fields))
            records[name] = {**records.get(name, {}), **changed}
            data = msgspec.json.format(msgspec.json.encode(records), indent=2)
            write_atomic(self._folder / USAGE_FILE, data, mode=0o600)

    @contextmanager
    def _locked(self) -> Generator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        handle = os.open(self._folder / f"{USAGE_FILE}.lock", flags, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _read_or_reset(self) -> bytes:
        path = self._folder / USAGE_FILE
        try:
            data = read_regular_file(path, _MAX_BYTES)
        except FileNotFoundError:
            return b"{}"
        if _read_mapping(data) is None:
            kept = keep_aside(path, self._clock.now())
            log.warning("%s is damaged and was reset; its old content is in %s", path, kept)
            return b"{}"
        return data

    def _read(self) -> bytes:
        try:
            return read_regular_file(self._folder / USAGE_FILE, _MAX_BYTES)
        except OSError:
            return b"{}"


def _read_mapping(data: bytes) -> dict[str, dict[str, object]] | None:
    try:
        return msgspec.json.decode(data, type=dict[str, dict[str, object]])
    except JSON_ERRORS:
        return None


def _decode(data: bytes) -> Mapping[str, SkillUsage]:
    found: dict[str, SkillUsage] = {}
    for name, fields in (_read_mapping(data) or {}).items():
        try:
            found[name] = msgspec.convert(fields, SkillUsage)
        except msgspec.ValidationError:
            continue
    return found
