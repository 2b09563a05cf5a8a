"""Pairing: an unknown user gets a code that the owner approves on the command line."""

import hashlib
import hmac
import logging
import secrets
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from hermes.gateway.one_time_code import hash_code, new_code, normalized_code
from hermes.gateway.pairing_files import PairingFiles, Table, as_entry, checked_platform
from hermes.gateway.platform_settings import canonical_id
from hermes.kit.clock import Clock
from hermes.kit.errors import ConfigError
from hermes.kit.text import one_line

log = logging.getLogger(__name__)

CODE_LIFETIME = 3600.0
REQUEST_INTERVAL = 600.0
MAX_PENDING = 3
PENDING_GRACE = 1200.0
"""Seconds a pending request is protected from being replaced, counted from the first code."""

MAX_FAILURES = 5
LOCKOUT = 3600.0

_KDF = "scrypt-12-8-1"
_MAX_NAME = 64
_MAX_TIMESTAMP = 1e11
"""Upper bound for plausible timestamps (seconds since 1970)."""


class PairingRejection(StrEnum):
    """Why no code was issued, or none was approved."""

    PAIRED = "paired"
    TOO_SOON = "too_soon"
    TOO_MANY_PENDING = "too_many_pending"
    LOCKED = "locked"
    UNKNOWN_CODE = "unknown_code"
    UNUSABLE = "unusable"
    """The id or the files are unusable; the log has the reason."""


class PairingCode(Struct, frozen=True):
    code: str
    expires_at: datetime


class PairingRejected(Struct, frozen=True):
    """`wait`: seconds until a retry makes sense. `tries_left`: bad codes before a lockout."""

    reason: PairingRejection
    wait: float = 0.0
    tries_left: int = 0


class PairingRequest(Struct, frozen=True):
    """A user waiting for approval. The code itself is not stored."""

    platform: str
    user: str
    name: str
    asked_at: datetime


class PairedUser(Struct, frozen=True):
    """An approved user; `name` is self-chosen and for display only."""

    platform: str
    user: str
    name: str = ""
    approved_at: datetime | None = None


class Pairing:
    """The pairing codes and approvals of one profile; calls block briefly on files."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._files = PairingFiles(folder)
        self._clock = clock
        self._faults: dict[str, str] = {}

    def request(self, platform: str, user: str, name: str = "") -> PairingCode | PairingRejected:
        """Issue a code to an unknown user, replacing an older one.

        File errors are only logged; the user gets no code.
        """
        platform = checked_platform(platform)
        user = canonical_id(platform, user)
        if not user:
            raise ValueError("Pairing needs the stable id of a person.")
        if user != _encodable(user):
            return PairingRejected(PairingRejection.UNUSABLE)
        try:
            answer = self._issue(platform, user, _encodable(one_line(name, _MAX_NAME)))
        except ConfigError as error:
            self._log_fault(f"{platform} can request pairing codes", error)
            return PairingRejected(PairingRejection.UNUSABLE)
        self._faults.pop(f"{platform} can request pairing codes", None)
        return answer

    def approve(self, platform: str, code: str) -> PairedUser | PairingRejected:
        """Approve the user who got this code; raises `UsageError` for an invalid code."""
        platform = checked_platform(platform)
        code = normalized_code(code, "pairing")
        with self._files.changing():
            now = self._clock.now().timestamp()
            limits = self._files.limits()
            if wait := _locked(limits, platform, now):
                return PairingRejected(PairingRejection.LOCKED, wait=wait)
            pending = _unexpired(self._files.pending(platform), now)
            # Check every entry, so that timing reveals nothing.
            matching = [key for key, entry in pending.items() if _matches_code(entry, code)]
            if not matching:
                return self._failed(platform, limits, now)
            entry = as_entry(pending.pop(matching[0]))
            user, name = _text(entry, "user_id"), _text(entry, "user_name")
            self._approve(platform, user, name, now)
            self._files.write_pending(platform, pending)
            if limits.pop(f"_failures:{platform}", None) is not None:
                self._files.write_limits(limits)
        return PairedUser(platform, user, name, _moment(now))

    def revoke(self, platform: str, user: str) -> bool:
        """Remove an approval; return False if there was none."""
        platform = checked_platform(platform)
        user = canonical_id(platform, user)
        with self._files.changing():
            approved = self._files.approved(platform)
            others = {key: e for key, e in approved.items() if canonical_id(platform, key) != user}
            if len(others) == len(approved):
                return False
            self._files.write_approved(platform, others)
        return True

    def clear_pending(self, platform: str | None = None) -> int:
        """Forget all pending codes and return their number."""
        count = 0
        with self._files.changing():
            for name in self._named(platform, "pending"):
                if pending := self._files.pending(name):
                    self._files.write_pending(name, {})
                    count += len(pending)
        return count

    def approved(self, platform: str) -> frozenset[str]:
        """Return the ids of all approved users, for the access rules.

        Empty while the file is unusable, so that users named in the settings still get through.
        """
        what = f"{platform} are treated as paired"
        try:
            users = self.paired_users(platform)
        except ConfigError as error:
            self._log_fault(what, error)
            return frozenset()
        self._faults.pop(what, None)
        return frozenset(paired.user for paired in users)

    def paired_users(self, platform: str | None = None) -> list[PairedUser]:
        return [
            PairedUser(
                name, canonical_id(name, user), _text(entry, "user_name"), _at(entry, "approved_at")
            )
            for name in self._named(platform, "approved")
            for user, value in self._files.approved(name).items()
            for entry in [as_entry(value)]
            if user.strip()
        ]

    def pending(self, platform: str | None = None) -> list[PairingRequest]:
        now = self._clock.now().timestamp()
        return [
            PairingRequest(name, _text(entry, "user_id"), _text(entry, "user_name"), asked_at)
            for name in self._named(platform, "pending")
            for value in _unexpired(self._files.pending(name), now).values()
            if (entry := as_entry(value)) and (asked_at := _at(entry, "created_at"))
        ]

    def _issue(self, platform: str, user: str, name: str) -> PairingCode | PairingRejected:
        with self._files.changing():
            now = self._clock.now().timestamp()
            pending = _unexpired(self._files.pending(platform), now)
            own = {k: e for k, e in pending.items() if _text(as_entry(e), "user_id") == user}
            others = {key: entry for key, entry in pending.items() if key not in own}
            if rejection := self._rejection(platform, user, others, now):
                return rejection
            requested = _request_times(others)
            if len(requested) >= MAX_PENDING:
                del others[min(requested, key=requested.__getitem__)]
            code = new_code()
            salt = secrets.token_bytes(16)
            entry = {
                "hash": hash_code(code, salt),
                "salt": salt.hex(),
                "kdf": _KDF,
                "user_id": user,
                "user_name": name,
                # Keep the first request time, or repeated requests would hold a slot forever.
                "created_at": min([now, *_request_times(own).values()]),
                "renewed_at": now,
            }
            self._files.write_pending(platform, {**others, secrets.token_hex(8): entry})
            limits = _recent(self._files.limits(), now)
            self._files.write_limits({**limits, f"{platform}:{user}": now})
        return PairingCode(code, _moment(now + CODE_LIFETIME))

    def _log_fault(self, what: str, error: ConfigError) -> None:
        """Log each fault once, not for every message."""
        if self._faults.get(what) != str(error):
            self._faults[what] = str(error)
            log.error("No users on %s: %s", what, error.sentence)

    def _named(self, platform: str | None, kind: str) -> list[str]:
        return self._files.platforms(kind) if platform is None else [checked_platform(platform)]

    def _rejection(
        self, platform: str, user: str, others: Table, now: float
    ) -> PairingRejected | None:
        limits = self._files.limits()
        if wait := _locked(limits, platform, now):
            return PairingRejected(PairingRejection.LOCKED, wait=wait)
        if any(canonical_id(platform, key) == user for key in self._files.approved(platform)):
            return PairingRejected(PairingRejection.PAIRED)
        since = now - (_number(limits.get(f"{platform}:{user}")) or 0.0)
        if 0 <= since < REQUEST_INTERVAL:
            return PairingRejected(PairingRejection.TOO_SOON, wait=REQUEST_INTERVAL - since)
        requested = _request_times(others)
        if len(requested) >= MAX_PENDING and now - min(requested.values()) <= PENDING_GRACE:
            return PairingRejected(
                PairingRejection.TOO_MANY_PENDING,
                wait=min(requested.values()) + PENDING_GRACE - now,
            )
        return None

    def _failed(self, platform: str, limits: Table, now: float) -> PairingRejected:
        failures = int(_number(limits.get(f"_failures:{platform}")) or 0) + 1
        if failures < MAX_FAILURES:
            self._files.write_limits({**limits, f"_failures:{platform}": failures})
            return PairingRejected(
                PairingRejection.UNKNOWN_CODE, tries_left=MAX_FAILURES - failures
            )
        locked = {f"_failures:{platform}": 0, f"_lockout:{platform}": now + LOCKOUT}
        self._files.write_limits({**limits, **locked})
        return PairingRejected(PairingRejection.UNKNOWN_CODE, wait=LOCKOUT)

    def _approve(self, platform: str, user: str, name: str, now: float) -> None:
        approved = self._files.approved(platform)
        same = [key for key in approved if canonical_id(platform, key) == user]
        known = as_entry(approved.pop(same[0])) if same else {}
        approved[user] = {**known, "user_name": name, "approved_at": now}
        self._files.write_approved(platform, approved)


def _sha256(code: str, salt: bytes) -> str:
    """The hash of codes that the public system has issued."""
    return hashlib.sha256(salt + code.encode()).hexdigest()


def _matches_code(value: object, code: str) -> bool:
    entry = as_entry(value)
    digest = {_KDF: hash_code, "": _sha256}.get(_text(entry, "kdf"))
    salt, expected = _text(entry, "salt"), _text(entry, "hash")
    if digest is None or not salt or not expected or not _text(entry, "user_id"):
        return False
    try:
        found = digest(code, bytes.fromhex(salt))
    except ValueError:
        return False
    return hmac.compare_digest(found.encode(), expected.encode())


def _unexpired(pending: Table, now: float) -> Table:
    """Drop expired entries; entries without a valid date are kept but never match."""
    return {
        key: entry
        for key, entry in pending.items()
        if (issued := _issued_at(entry)) is None or 0 <= now - issued <= CODE_LIFETIME
    }


def _recent(limits: Table, now: float) -> Table:
    """Drop requests that no longer limit new ones."""
    return {
        key: value
        for key, value in limits.items()
        if key.startswith("_") or now - (_number(value) or now) < REQUEST_INTERVAL
    }


def _locked(limits: Table, platform: str, now: float) -> float:
    """Seconds until approvals are accepted again; at most one lockout."""
    return min(max((_number(limits.get(f"_lockout:{platform}")) or 0.0) - now, 0.0), LOCKOUT)


def _requested_at(value: object) -> float | None:
    return _number(as_entry(value).get("created_at"))


def _issued_at(value: object) -> float | None:
    """Time the current code was issued; its lifetime starts there."""
    renewed = _number(as_entry(value).get("renewed_at"))
    return _requested_at(value) if renewed is None else renewed


def _request_times(pending: Table) -> dict[str, float]:
    dated = ((key, _requested_at(entry)) for key, entry in pending.items())
    return {key: at for key, at in dated if at is not None}


def _encodable(text: str) -> str:
    """Replace lone surrogates, which cannot be stored."""
    return text.encode(errors="replace").decode()


def _at(entry: Table, name: str) -> datetime | None:
    number = _number(entry.get(name))
    return _moment(number) if number is not None and 0 <= number < _MAX_TIMESTAMP else None


def _moment(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _text(entry: Table, name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""
