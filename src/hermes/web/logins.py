"""Logins of the web page: one-time links, sessions of browsers, and a limit on attempts.

They are kept in a file of the home, so that `hermes dashboard` can print a link for a page that
the gateway serves. Only hashes of the secrets are stored.
"""

import hashlib
import hmac
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.files import open_locked, write_atomic
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line

LINK_LIFETIME = timedelta(minutes=15)
SESSION_LIFETIME = timedelta(days=30)
OIDC_LIFETIME = timedelta(hours=12)
"""Time after which the provider must confirm the login again, even if the page is in use."""
SEEN_INTERVAL = timedelta(minutes=10)
"""Interval at which the time of the last use is stored."""
MAX_LINKS = 20
MAX_SESSIONS = 100
MAX_PASSKEYS = 50
MAX_FAILURES = 10
"""Failed logins per address within the window; further ones are rejected."""
MAX_ALL_FAILURES = 100
FAILURE_WINDOW = 300.0

_Stamp = tuple[int, int, int]
"""Inode, time and size of the file, which differ after each change."""


class LoginLink(Struct, frozen=True, kw_only=True):
    digest: str
    expires: datetime


class Proof(Struct, frozen=True):
    """How someone logged in: by `link`, `password`, `passkey` or `oidc`.

    `who` is the id of the passkey, or the user of the OpenID Connect provider.
    """

    method: str
    who: str = ""


BY_LINK = Proof("link")


class WebLogin(Struct, frozen=True, kw_only=True):
    """A browser that is logged in. Images from `image_hosts` are shown in the agent's answers."""

    id: str
    digest: str
    csrf_digest: str
    created: datetime
    seen: datetime
    agent: str = ""
    address: str = ""
    image_hosts: tuple[str, ...] = ()
    proof: Proof = Proof("")

    def is_valid(self, now: datetime) -> bool:
        if self.proof.method == "oidc" and now - self.created > OIDC_LIFETIME:
            return False
        return now - self.seen <= SESSION_LIFETIME


class Passkey(Struct, frozen=True, kw_only=True):
    """`host` is the host name at which it was created; `count` is the device's usage counter."""

    id: str
    host: str
    public_key: str
    algorithm: int
    name: str
    created: datetime
    count: int = 0


class OpenedLogin(Struct, frozen=True):
    """The cookie of a new login, and the CSRF token that its pages' requests repeat.

    They are independent, because other servers on the same host may receive the cookie.
    """

    token: str
    csrf: str


class _File(Struct, frozen=True, kw_only=True):
    links: tuple[LoginLink, ...] = ()
    sessions: tuple[WebLogin, ...] = ()
    passkeys: tuple[Passkey, ...] = ()
    owner: str = ""
    """A random id of the owner, which passkeys are stored under."""


class Logins:
    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._path = folder / "logins.json"
        self._lock = folder / "logins.lock"
        self._clock = clock
        self._cached: tuple[_Stamp | None, _File] = (None, _File())

    def new_link(self) -> str:
        """A token that logs in once."""
        token = secrets.token_urlsafe(32)
        link = LoginLink(digest=_digest(token), expires=self._clock.now() + LINK_LIFETIME)
        with self._changing() as before:
            self._write(structs.replace(before, links=(*before.links[-MAX_LINKS + 1 :], link)))
        return token

    def use_link(self, token: str) -> bool:
        """Whether the token was valid; it is used up."""
        digest = _digest(token)
        with self._changing() as before:
            rest = tuple(link for link in before.links if link.digest != digest)
            if len(rest) == len(before.links):
                return False
            self._write(structs.replace(before, links=rest))
        return True

    def open_session(self, agent: str, address: str, proof: Proof = BY_LINK) -> OpenedLogin:
        token, csrf, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._clock.now()
        login = WebLogin(
            id=secrets.token_hex(6),
            digest=_digest(token),
            csrf_digest=_digest(csrf),
            created=now,
            seen=now,
            agent=one_line(agent, 200),
            address=address,
            proof=proof,
        )
        with self._changing() as before:
            kept = (*before.sessions[-MAX_SESSIONS + 1 :], login)
            self._write(structs.replace(before, sessions=kept))
        return OpenedLogin(token, csrf)

    def find(self, token: str, *, is_use: bool = True) -> WebLogin | None:
        """Return the login of this token, if it has not expired; `is_use` extends it."""
        digest, now = _digest(token), self._clock.now()
        found = next(
            (session for session in self._read().sessions if session.digest == digest), None
        )
        if found is None or not found.is_valid(now):
            return None
        if is_use and now - found.seen > SEEN_INTERVAL:
            self._replace(structs.replace(found, seen=now))
        return found

    def sessions(self) -> tuple[WebLogin, ...]:
        now = self._clock.now()
        return tuple(session for session in self._read().sessions if session.is_valid(now))

    def revoke(self, identity: str) -> bool:
        with self._changing() as before:
            rest = tuple(session for session in before.sessions if session.id != identity)
            self._write(structs.replace(before, sessions=rest))
        return len(rest) < len(before.sessions)

    def passkeys(self) -> tuple[Passkey, ...]:
        return self._read().passkeys

    def owner(self) -> str:
        """The random id of the owner, which passkeys are stored under."""
        with self._changing() as before:
            if before.owner:
                return before.owner
            made = secrets.token_urlsafe(16)
            self._write(structs.replace(before, owner=made))
        return made

    def add_passkey(self, passkey: Passkey) -> bool:
        """Add a passkey; return False if its id exists or there are too many."""
        with self._changing() as before:
            known = {one.id for one in before.passkeys}
            if passkey.id in known or len(known) >= MAX_PASSKEYS:
                return False
            self._write(structs.replace(before, passkeys=(*before.passkeys, passkey)))
        return True

    def count_passkey(self, passkey: Passkey, count: int) -> bool:
        """Store the counter after a use; False if the passkey was removed or used meanwhile."""
        with self._changing() as before:
            if passkey not in before.passkeys:
                return False
            if count != passkey.count:
                used = structs.replace(passkey, count=count)
                changed = tuple(used if one == passkey else one for one in before.passkeys)
                self._write(structs.replace(before, passkeys=changed))
        return True

    def remove_passkey(self, identity: str) -> tuple[str, ...]:
        """Remove it; returns the ids of the logins that were opened with it."""
        with self._changing() as before:
            rest = tuple(passkey for passkey in before.passkeys if passkey.id != identity)
            self._write(structs.replace(before, passkeys=rest))
        proof = Proof("passkey", identity)
        return tuple(session.id for session in before.sessions if session.proof == proof)

    def allow_images(self, login: WebLogin, host: str) -> None:
        """Let this browser load images from the host."""
        if host not in login.image_hosts:
            hosts = (*login.image_hosts[-29:], host)
            self._replace(structs.replace(login, image_hosts=hosts))

    def _replace(self, login: WebLogin) -> None:
        with self._changing() as before:
            changed = tuple(
                login if session.id == login.id else session for session in before.sessions
            )
            self._write(structs.replace(before, sessions=changed))

    @contextmanager
    def _changing(self) -> Generator[_File]:
        """Lock the file; expired entries are dropped."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_locked(self._lock):
            found, now = self._read(), self._clock.now()
            yield structs.replace(
                found,
                links=tuple(link for link in found.links if link.expires > now),
                sessions=tuple(session for session in found.sessions if session.is_valid(now)),
            )

    def _read(self) -> _File:
        try:
            found = self._path.stat()
            stamp = found.st_ino, found.st_mtime_ns, found.st_size
            if stamp != self._cached[0]:
                self._cached = stamp, msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return _File()
        except JSON_ERRORS:
            # A damaged file logs everyone out; a new link repairs it.
            return _File()
        return self._cached[1]

    def _write(self, content: _File) -> None:
        write_atomic(self._path, msgspec.json.encode(content), mode=0o600)
        self._cached = None, _File()


class LoginLimiter:
    """Counts failed logins per address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, list[float]] = {}

    def is_blocked(self, address: str) -> bool:
        since = self._clock.monotonic() - FAILURE_WINDOW
        for one, times in list(self._failures.items()):
            times[:] = [at for at in times if at > since]
            if not times:
                del self._failures[one]
        total = sum(map(len, self._failures.values()))
        return len(self._failures.get(address, ())) >= MAX_FAILURES or total >= MAX_ALL_FAILURES

    def count_failure(self, address: str) -> None:
        """Call before the check, so that concurrent attempts count; `forget` it after success."""
        self._failures.setdefault(address, []).append(self._clock.monotonic())

    def forget(self, address: str) -> None:
        if times := self._failures.get(address):
            times.pop()


def is_csrf_token(login: WebLogin, token: str) -> bool:
    """Whether requests of this login may repeat this token."""
    return hmac.compare_digest(_digest(token), login.csrf_digest)


def _digest(token: str) -> str:
    # Headers may contain any bytes.
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
