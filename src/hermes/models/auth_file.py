"""Read and write `auth.json`: keys and logins by provider, and their cooldowns.

    {"version": 1,
     "credential_pool": {PROVIDER: [{"id", "label", "auth_type", "priority", "source",
                                     "access_token", "last_status", ...}]},
     "resting": {PROVIDER: {FINGERPRINT: {"until", "why"}}}}

Unknown fields are preserved. `resting` is for keys stored elsewhere, such as in the environment:
only their fingerprint is stored.
"""

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from hermes.kit.files import file_error, read_regular_file, write_atomic
from hermes.schema.errors import ConfigError, UsageError

POOL_KEY = "credential_pool"
COOLDOWNS_KEY = "resting"
EXHAUSTED = "exhausted"
OAUTH = "oauth"
API_KEY = "api_key"
DEFAULT_COOLDOWN = 3600.0
"""Seconds for an exhausted key without a reset time."""

Document = dict[str, Any]


class Credential(Struct, frozen=True, kw_only=True):
    """An API key or login. Times are seconds since 1970.

    `base_url` is the address that a key of the provider `custom` belongs to.
    """

    id: str = ""
    label: str = ""
    auth_type: str = API_KEY
    priority: int = 0
    source: str = "manual"
    access_token: str = ""
    base_url: str | None = None
    refresh_token: str | None = None
    expires_at: float | str | None = None
    last_status: str | None = None
    last_status_at: float | str | None = None
    last_error_reason: str | None = None
    last_error_reset_at: float | str | None = None

    @property
    def exhausted_until(self) -> float:
        """Return zero when the key is not exhausted."""
        if self.last_status != EXHAUSTED:
            return 0.0
        until = parse_timestamp(self.last_error_reset_at)
        if until is None:
            until = (parse_timestamp(self.last_status_at) or 0.0) + DEFAULT_COOLDOWN
        return until

    @property
    def expires(self) -> float | None:
        return parse_timestamp(self.expires_at) if self.expires_at else None


class Cooldown(Struct, frozen=True):
    until: float
    why: str = ""


class AuthFile(Struct, frozen=True):
    """Reads without a lock, since the file is replaced atomically; writes take the lock."""

    path: Path

    def credentials(self, provider: str) -> list[Credential]:
        """Return the credentials in order of priority."""
        return _credentials(self._read(), provider)

    def all_credentials(self) -> dict[str, list[Credential]]:
        document = self._read()
        return {name: _credentials(document, name) for name in sorted(_table(document, POOL_KEY))}

    def providers(self) -> list[str]:
        return sorted(_table(self._read(), POOL_KEY))

    def cooldowns(self, provider: str) -> dict[str, Cooldown]:
        """Return cooldowns by key fingerprint, including expired ones."""
        document = self._read()
        found = {
            fingerprint(credential.access_token): Cooldown(
                until, credential.last_error_reason or ""
            )
            for credential in _credentials(document, provider)
            if (until := credential.exhausted_until)
        }
        for name, value in _table(_table(document, COOLDOWNS_KEY), provider).items():
            with suppress(msgspec.ValidationError):
                found[name] = msgspec.convert(value, Cooldown, strict=False)
        return found

    def add(self, provider: str, credential: Credential, now: datetime) -> Credential:
        """Add a credential; a key that exists already only gets the new label."""
        import secrets  # noqa: PLC0415 - needed only to add a key

        with self._changing(now) as document:
            rows = document.setdefault(POOL_KEY, {}).setdefault(provider, [])
            wanted = (credential.access_token, credential.base_url)
            for row in rows:
                if (row.get("access_token"), row.get("base_url")) == wanted:
                    row["label"] = credential.label or row.get("label", "")
                    return _credential(row) or credential
            added = msgspec.structs.replace(
                credential,
                id=secrets.token_hex(3),
                label=credential.label or f"key-{len(rows) + 1}",
                priority=max((row.get("priority", 0) for row in rows), default=-1) + 1,
            )
            fields = msgspec.structs.asdict(added).items()
            rows.append({name: value for name, value in fields if value is not None})
        return added

    def remove(self, provider: str, which: str, now: datetime) -> Credential:
        """Remove a credential by id, label or list number; raise `UsageError` if not found."""
        with self._changing(now) as document:
            found = _find(_credentials(document, provider), provider, which)
            rows = document[POOL_KEY][provider]
            document[POOL_KEY][provider] = [row for row in rows if row.get("id") != found.id]
            if not document[POOL_KEY][provider]:
                del document[POOL_KEY][provider]
        return found

    def update(self, provider: str, identity: str, now: datetime, **fields: object) -> None:
        """Change fields of one credential, if it still exists."""
        with self._changing(now) as document:
            for row in _table(document, POOL_KEY).get(provider, ()):
                if row.get("id") == identity:
                    row.update(fields)

    def add_cooldown(self, provider: str, key: str, cooldown: Cooldown, now: datetime) -> None:
        with self._changing(now) as document:
            rows = _table(document, POOL_KEY).get(provider, ())
            own = [row for row in rows if row.get("access_token") == key]
            for row in own:
                row |= {
                    "last_status": EXHAUSTED,
                    "last_status_at": now.timestamp(),
                    "last_error_reason": cooldown.why,
                    "last_error_reset_at": cooldown.until,
                }
            if not own:
                cooldowns = document.setdefault(COOLDOWNS_KEY, {})
                known = _table(cooldowns, provider)
                until = {name: _table(known, name).get("until") for name in known}
                cooldowns[provider] = {
                    name: value
                    for name, value in known.items()
                    if (parse_timestamp(until[name]) or 0.0) > now.timestamp()
                } | {fingerprint(key): msgspec.to_builtins(cooldown)}

    def clear_cooldowns(self, provider: str, now: datetime) -> int:
        """Clear all cooldowns of a provider and return how many there were."""
        with self._changing(now) as document:
            cleared = len(_table(document, COOLDOWNS_KEY).pop(provider, {}))
            for row in _table(document, POOL_KEY).get(provider, ()):
                if row.get("last_status") == EXHAUSTED:
                    row |= {"last_status": None, "last_error_reset_at": None}
                    cleared += 1
        return cleared

    def _read(self) -> Document:
        try:
            text = read_regular_file(self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise file_error(error, f"{self.path} cannot be read: {error.strerror}") from error
        try:
            return msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(
                f"{self.path} is damaged: {error}",
                hint="Repair it, or rename it and add the keys again: hermes auth add PROVIDER",
            ) from error

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Lock the file against all other processes. Blocks; hold it only briefly."""
        lock = self.path.with_name("auth.lock")
        try:
            lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise file_error(error, f"{lock} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _changing(self, now: datetime) -> Generator[Document]:
        with self._locked():
            document = self._read()
            yield document
            document.setdefault("version", 1)
            document["updated_at"] = now.isoformat()
            text = msgspec.json.format(msgspec.json.encode(document), indent=2)
            try:
                write_atomic(self.path, text + b"\n", mode=0o600)
            except OSError as error:
                message = f"{self.path} cannot be written: {error.strerror}"
                raise file_error(error, message) from error


def fingerprint(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:16]


def parse_timestamp(value: float | str | None) -> float | None:
    """Return seconds since 1970 for a number or an ISO 8601 string."""
    if value is None:
        return None
    with suppress(ValueError):
        return float(value)
    with suppress(ValueError):
        return datetime.fromisoformat(str(value)).timestamp()
    return None


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _credentials(document: Document, provider: str) -> list[Credential]:
    rows = _table(document, POOL_KEY).get(provider)
    known = cast("list[object]", rows) if isinstance(rows, list) else []
    found = [one for row in known if (one := _credential(row))]
    return sorted(found, key=lambda credential: credential.priority)


def _credential(row: object) -> Credential | None:
    """Return None for an invalid or unknown kind of credential."""
    try:
        credential = msgspec.convert(row, Credential, strict=False)
    except msgspec.ValidationError:
        return None
    return credential if credential.access_token else None


def _find(known: list[Credential], provider: str, which: str) -> Credential:
    matching = [credential for credential in known if which in {credential.id, credential.label}]
    if not matching and which.isdecimal() and 0 < int(which) <= len(known):
        matching = [known[int(which) - 1]]
    if len(matching) == 1:
        return matching[0]
    several = f"several {provider} keys match {which!r}"
    message = several if matching else f"{provider} has no key {which!r}"
    raise UsageError(message, hint=f"List the keys: hermes auth list {provider}")
