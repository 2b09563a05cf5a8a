"""Record how often each skill was viewed, used and changed."""

import fcntl
import logging
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.files import keep_aside, read_regular_file, write_atomic

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
        labels = ["built in"] if builtin else []
        labels += ["by the agent"] if self.created_by == BY_AGENT else []
        labels += ["installed"] if self.created_by == INSTALLED else []
        labels += ["pinned"] if self.pinned else []
        return (*labels, *(["stale"] if self.state == "stale" else []))


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
        now = self._clock.now()
        self._change(
            name, lambda r: structs.replace(r, last_viewed_at=now, view_count=r.view_count + 1)
        )

    def used(self, name: str) -> None:
        now = self._clock.now()
        self._change(
            name,
            lambda r: structs.replace(
                r, last_used_at=now, use_count=r.use_count + 1, state="active"
            ),
        )

    def patched(self, name: str) -> None:
        now = self._clock.now()
        self._change(
            name, lambda r: structs.replace(r, last_patched_at=now, patch_count=r.patch_count + 1)
        )

    def created(self, name: str, by: str) -> None:
        now = self._clock.now()
        self._change(name, lambda r: structs.replace(r, created_at=now, created_by=by))

    def pin(self, name: str, *, pinned: bool) -> None:
        self._change(name, lambda r: structs.replace(r, pinned=pinned))

    def mark(self, name: str, state: str) -> None:
        at = self._clock.now() if state == "archived" else None
        self._change(name, lambda r: structs.replace(r, state=state, archived_at=at))

    def _change(self, name: str, change: Callable[[SkillUsage], SkillUsage]) -> None:
        """Raises `OSError` when the file exists but cannot be read; it is not overwritten."""
        with self._locked():
            data = self._read_or_reset()
            records = _read_mapping(data)
            known = _decode(data).get(name, SkillUsage())
            # Fields written by other programs are kept.
            records[name] = {**records.get(name, {}), **_fields(change(known))}
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
        if not _is_mapping(data):
            kept = keep_aside(path, self._clock.now())
            log.warning("%s is damaged and was reset; its old content is in %s", path, kept)
            return b"{}"
        return data

    def _read(self) -> bytes:
        try:
            return read_regular_file(self._folder / USAGE_FILE, _MAX_BYTES)
        except OSError:
            return b"{}"


def _is_mapping(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=dict[str, dict[str, object]])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _read_mapping(data: bytes) -> dict[str, dict[str, object]]:
    try:
        return msgspec.json.decode(data, type=dict[str, dict[str, object]])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _decode(data: bytes) -> Mapping[str, SkillUsage]:
    found: dict[str, SkillUsage] = {}
    for name, fields in _read_mapping(data).items():
        try:
            found[name] = msgspec.convert(fields, SkillUsage)
        except msgspec.ValidationError:
            continue
    return found


def _fields(record: SkillUsage) -> dict[str, object]:
    return msgspec.to_builtins(record)
