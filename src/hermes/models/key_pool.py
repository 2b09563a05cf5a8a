"""The API keys of a provider: which comes next, cooldowns, renewal of logins, and their status."""

import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, assert_never

from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.models.auth_file import OAUTH, AuthFile, Cooldown, Credential, fingerprint
from hermes.models.selection import pool_name
from hermes.models.settings import DeviceLogin, KeyStrategy, ModelSettings
from hermes.schema.errors import ConfigError, ModelError, Unauthorized

log = logging.getLogger(__name__)


class CooldownStore(Protocol):
    """Key cooldowns that outlive the process."""

    def remaining(self, keys: Sequence[str]) -> Mapping[str, float]:
        """Return the remaining seconds for each key on cooldown."""
        ...

    async def save(self, key: str, seconds: float, reason: str, *, only_key: bool) -> None:
        """Store a cooldown; `only_key` means that there is no other."""
        ...


class KeyRing:
    """The keys of one model at one provider.

    A provider without keys has a ring with one empty key. Cooldowns are loaded from `cooldowns`,
    and written to it by `save_cooldowns`.
    """

    def __init__(
        self,
        keys: Sequence[str],
        strategy: KeyStrategy = KeyStrategy.FILL_FIRST,
        chance: Callable[[], float] = random.random,
        cooldowns: CooldownStore | None = None,
        now: float = 0.0,
    ) -> None:
        self._keys = tuple(dict.fromkeys(keys)) or ("",)
        self._strategy = strategy
        self._chance = chance
        self._cooldowns: dict[str, float] = {}
        self._used = dict.fromkeys(self._keys, 0)
        self._last = -1
        self._store = cooldowns
        self._unsaved: list[tuple[str, float, str]] = []
        if cooldowns and len(self._keys) > 1:
            left = cooldowns.remaining(self._keys)
            self._cooldowns = {key: now + seconds for key, seconds in left.items()}

    def __len__(self) -> int:
        return len(self._keys)

    def next_key(self, now: float) -> str:
        """Return a ready key, or the one that is ready soonest."""
        if len(self._keys) == 1:
            return self._keys[0]
        key = self._choose(self._ready(now)) or min(self._keys, key=self._ready_at)
        self._used[key] += 1
        self._last = self._keys.index(key)
        return key

    def cool_until(self, key: str, until: float) -> None:
        """Do not use this key until then."""
        self._cooldowns[key] = max(until, self._ready_at(key))

    def start_cooldown(self, key: str, now: float, seconds: float, reason: str) -> None:
        """Put a key on cooldown, to be stored by `save_cooldowns`."""
        self.cool_until(key, now + seconds)
        if self._store:
            self._unsaved.append((key, seconds, reason))

    async def save_cooldowns(self) -> None:
        """Store the cooldowns that are not stored yet."""
        while self._store and self._unsaved:
            key, seconds, reason = self._unsaved.pop(0)
            await self._store.save(key, seconds, reason, only_key=len(self._keys) == 1)

    def has_ready(self, now: float) -> bool:
        return bool(self._ready(now))

    def _ready(self, now: float) -> list[str]:
        return [key for key in self._keys if self._ready_at(key) <= now]

    def _ready_at(self, key: str) -> float:
        return self._cooldowns.get(key, float("-inf"))

    def _choose(self, ready: Sequence[str]) -> str:
        if not ready:
            return ""
        match self._strategy:
            case KeyStrategy.FILL_FIRST:
                return ready[0]
            case KeyStrategy.ROUND_ROBIN:
                after = (*self._keys[self._last + 1 :], *self._keys)
                return next(key for key in after if key in ready)
            case KeyStrategy.RANDOM:
                return ready[int(self._chance() * len(ready))]
            case KeyStrategy.LEAST_USED:
                return min(ready, key=self._used.__getitem__)
            case _:
                assert_never(self._strategy)


_RENEW_BEFORE = 60.0


class AuthFileCooldowns(Struct):
    """Implements `CooldownStore` for one provider. A failed write is only logged."""

    _file: AuthFile
    _provider: str
    _clock: Clock
    _on_rejected_login: Callable[[], None] = lambda: None

    def remaining(self, keys: Sequence[str]) -> Mapping[str, float]:
        now = self._clock.now().timestamp()
        try:
            cooldowns = self._file.cooldowns(self._provider)
        except ConfigError as error:
            log.warning("cannot read key cooldowns: %s", error)
            return {}
        return {
            key: cooldown.until - now
            for key in keys
            if (cooldown := cooldowns.get(fingerprint(key))) and cooldown.until > now
        }

    async def save(self, key: str, seconds: float, reason: str, *, only_key: bool) -> None:
        if not key:
            return
        try:
            await run_sync(partial(self._save, key, seconds, reason, only_key=only_key))
        except ConfigError as error:
            log.warning("cannot save a key cooldown: %s", error)

    def _save(self, key: str, seconds: float, reason: str, *, only_key: bool) -> None:
        """Mark a rejected token as expired, so that it is renewed; put other keys on cooldown."""
        now = self._clock.now()
        rejected = self._file.credentials(self._provider) if reason == Unauthorized.code else ()
        for credential in rejected:
            if credential.access_token == key and credential.refresh_token:
                self._file.update(self._provider, credential.id, now, expires_at=now.timestamp())
                self._on_rejected_login()
                return
        if not only_key:
            cooldown = Cooldown(now.timestamp() + seconds, reason)
            self._file.add_cooldown(self._provider, key, cooldown, now)


class KeyPool(Struct):
    """Reads the keys in `auth.json`, and renews logins that are about to expire."""

    _file: AuthFile
    _clock: Clock
    renew_at: float = math.inf
    """When a token that was handed out is about to expire."""

    def cooldowns(self, provider: str) -> AuthFileCooldowns:
        return AuthFileCooldowns(self._file, provider, self._clock, self._expire)

    def _expire(self) -> None:
        self.renew_at = -math.inf

    def with_keys(self, settings: ModelSettings) -> ModelSettings:
        """Return the settings with the pool's keys, without renewing any."""
        if not self._file.path.exists():
            return settings
        return _with_pools(settings, self._file.all_credentials())

    async def with_renewed_keys(self, settings: ModelSettings) -> ModelSettings:
        """Return the settings with the pool's keys, after renewing expiring logins."""
        if not self._file.path.exists():
            return settings
        credentials = self._file.all_credentials()
        self.renew_at = math.inf
        for provider, login in settings.logins.items():
            known = credentials.get(provider, ())
            credentials[provider] = [
                await self._renewed(provider, credential, login) for credential in known
            ]
        return _with_pools(settings, credentials)

    async def _renewed(
        self, provider: str, credential: Credential, login: DeviceLogin
    ) -> Credential:
        if credential.auth_type != OAUTH:
            return credential
        from hermes.models.oauth import OAuthClient  # noqa: PLC0415 - rarely needed

        client = OAuthClient(self._file, self._clock)
        try:
            fresh = await client.renewed_if_expiring(provider, credential, login)
        except ModelError as error:
            # Other providers must not wait for this one; it is retried soon.
            log.warning("cannot renew the login for %s: %s", provider, error)
            self.renew_at = min(self.renew_at, self._clock.now().timestamp() + _RENEW_BEFORE)
            return credential
        self.renew_at = min(self.renew_at, (fresh.expires or math.inf) - _RENEW_BEFORE)
        return fresh


def stored_secrets(path: Path) -> list[str]:
    """Return every key and token in `auth.json`, for redaction."""
    credentials = AuthFile(path).all_credentials()
    known = (credential for each in credentials.values() for credential in each)
    return [
        token
        for credential in known
        for token in (credential.access_token, credential.refresh_token)
        if token
    ]


def _with_pools(
    settings: ModelSettings, credentials: Mapping[str, list[Credential]]
) -> ModelSettings:
    """Group keys by `pool_name`; a `custom` key without an address is never sent."""
    keys: dict[str, tuple[str, ...]] = {}
    for provider, known in credentials.items():
        for credential in known:
            name = pool_name(provider, credential.base_url or "")
            keys[name] = (*keys.get(name, ()), credential.access_token)
    return structs.replace(settings, pools=keys)


class KeyStatus(Struct, frozen=True, kw_only=True):
    """`source` is a variable's name, `config.yaml` or `auth.json`; `cooldown` is in seconds."""

    key: str
    source: str
    id: str = ""
    label: str = ""
    kind: str = "api_key"
    cooldown: float = 0.0
    reason: str = ""
    expires: float | None = None


class NextKey(Struct, frozen=True):
    """The index of the key that would be used next, and the reason."""

    index: int
    reason: str


def key_statuses(
    configured: Sequence[tuple[str, str]],
    pool: Sequence[Credential],
    cooldowns: Mapping[str, Cooldown],
    now: float,
) -> list[KeyStatus]:
    """Merge configured keys, which come first, with those of the pool."""
    known = [KeyStatus(key=key, source=source) for key, source in configured]
    known += [
        KeyStatus(
            key=credential.access_token,
            source="auth.json",
            id=credential.id,
            label=credential.label,
            kind=credential.auth_type,
            expires=credential.expires,
        )
        for credential in pool
    ]
    found: dict[str, KeyStatus] = {}
    for key_status in known:
        cooldown = cooldowns.get(fingerprint(key_status.key), Cooldown(0.0))
        left = max(cooldown.until - now, 0.0)
        reason = cooldown.why if left else ""
        found.setdefault(key_status.key, structs.replace(key_status, cooldown=left, reason=reason))
    return list(found.values())


def next_key(keys: Sequence[KeyStatus], strategy: KeyStrategy) -> NextKey | None:
    """Return the key that a process started now would use."""
    if not keys:
        return None
    ring = KeyRing([key.key for key in keys], strategy)
    for key in keys:
        if key.cooldown:
            ring.cool_until(key.key, key.cooldown)
    ready = sum(not key.cooldown for key in keys)
    if len(keys) == 1:
        reason = "the only key"
    elif not ready:
        reason = "all keys are on cooldown; this one is ready soonest"
    elif ready == 1:
        reason = "all other keys are on cooldown"
    elif strategy is KeyStrategy.RANDOM:
        reason = f"one of {ready}, at random"
    else:
        reason = f"the first key that is ready ({strategy})"
    return NextKey([key.key for key in keys].index(ring.next_key(0.0)), reason)
