"""Keep key cooldowns across processes, and renew logins before they expire."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.models.auth_file import OAUTH, AuthFile, Cooldown, Credential, fingerprint
from hermes.models.key_ring import KeyRing, KeyStrategy
from hermes.models.selection import pool_name
from hermes.models.settings import DeviceLogin, ModelSettings
from hermes.schema.errors import ConfigError, ModelError, Unauthorized

log = logging.getLogger(__name__)


class AuthFileCooldowns:
    """Implements `CooldownStore` for one provider. A failed write is only logged."""

    def __init__(
        self,
        file: AuthFile,
        provider: str,
        clock: Clock,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._file = file
        self._provider = provider
        self._clock = clock
        self._refused = refused

    def remaining(self, keys: Sequence[str]) -> Mapping[str, float]:
        now = self._clock.now().timestamp()
        try:
            rests = self._file.cooldowns(self._provider)
        except ConfigError as error:
            log.warning("cannot read key cooldowns: %s", error)
            return {}
        return {
            key: rest.until - now
            for key in keys
            if (rest := rests.get(fingerprint(key))) and rest.until > now
        }

    async def save(self, key: str, seconds: float, why: str, *, alone: bool) -> None:
        if not key:
            return
        try:
            await run_sync(partial(self._note, key, seconds, why, alone=alone))
        except ConfigError as error:
            log.warning("cannot save a key cooldown: %s", error)

    def _note(self, key: str, seconds: float, why: str, *, alone: bool) -> None:
        """Mark a refused token as expired, so that it is renewed; put any other key on cooldown."""
        now = self._clock.now()
        for one in self._file.credentials(self._provider) if why == Unauthorized.code else ():
            if one.access_token == key and one.refresh_token:
                self._file.update(self._provider, one.id, now, expires_at=now.timestamp())
                self._refused()
                return
        if not alone:
            rest = Cooldown(now.timestamp() + seconds, why)
            self._file.add_cooldown(self._provider, key, rest, now)


_RENEW_BEFORE = 60.0


class KeyPool:
    """Reads the keys in `auth.json`, and renews logins that are about to expire."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = AuthFile(path)
        self._clock = clock
        self._ends = math.inf

    @property
    def is_expiring(self) -> bool:
        """Return whether a token that was handed out is about to expire."""
        return self._clock.now().timestamp() >= self._ends - _RENEW_BEFORE

    def cooldowns(self, provider: str) -> AuthFileCooldowns:
        return AuthFileCooldowns(self._file, provider, self._clock, self._end)

    def _end(self) -> None:
        self._ends = -math.inf

    def with_keys(self, settings: ModelSettings) -> ModelSettings:
        """Return the settings with the keys of the pool, without renewing any."""
        credentials = self._credentials()
        if not credentials:
            return settings
        return structs.replace(settings, pools=_keys_by_pool(credentials))

    async def with_renewed_keys(self, settings: ModelSettings) -> ModelSettings:
        """Return the settings with the keys of the pool, after renewing expiring logins."""
        credentials = self._credentials()
        if not credentials:
            return settings
        self._ends = math.inf
        for provider, login in settings.logins.items():
            credentials[provider] = [
                await self._renewed(provider, one, login) for one in credentials.get(provider, ())
            ]
        return structs.replace(settings, pools=_keys_by_pool(credentials))

    async def _renewed(self, provider: str, one: Credential, login: DeviceLogin) -> Credential:
        if one.auth_type != OAUTH:
            return one
        from hermes.models.oauth import OAuthClient  # noqa: PLC0415 - rarely needed

        try:
            fresh = await OAuthClient(self._file, self._clock).renewed_if_expiring(
                provider, one, login
            )
        except ModelError as error:
            # Other providers must not wait for this one; it is retried soon.
            log.warning("cannot renew the login for %s: %s", provider, error)
            self._ends = min(self._ends, self._clock.now().timestamp() + 2 * _RENEW_BEFORE)
            return one
        self._ends = min(self._ends, fresh.expires or math.inf)
        return fresh

    def _credentials(self) -> dict[str, list[Credential]]:
        if not self._file.path.exists():
            return {}
        return {name: self._file.credentials(name) for name in self._file.providers()}


def stored_secrets(path: Path) -> list[str]:
    """Return every key and token in `auth.json`, for redaction."""
    if not path.exists():
        return []
    file = AuthFile(path)
    credentials = [one for name in file.providers() for one in file.credentials(name)]
    return [
        secret for one in credentials for secret in (one.access_token, one.refresh_token) if secret
    ]


def _keys_by_pool(credentials: Mapping[str, list[Credential]]) -> dict[str, tuple[str, ...]]:
    """Group keys by `pool_name`; a `custom` key without an address is never sent."""
    keys: dict[str, tuple[str, ...]] = {}
    for provider, known in credentials.items():
        for one in known:
            name = pool_name(provider, one.base_url or "")
            keys[name] = (*keys.get(name, ()), one.access_token)
    return keys


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
    found: dict[str, KeyStatus] = {}
    for key, source in configured:
        rest = cooldowns.get(fingerprint(key), Cooldown(0.0))
        left = max(rest.until - now, 0.0)
        found.setdefault(
            key, KeyStatus(key=key, source=source, cooldown=left, reason=rest.why if left else "")
        )
    for one in pool:
        rest = cooldowns.get(fingerprint(one.access_token), Cooldown(0.0))
        left = max(rest.until - now, 0.0)
        status = KeyStatus(
            key=one.access_token,
            source="auth.json",
            id=one.id,
            label=one.label,
            kind=one.auth_type,
            cooldown=left,
            reason=rest.why if left else "",
            expires=one.expires,
        )
        found.setdefault(one.access_token, status)
    return list(found.values())


def next_key(keys: Sequence[KeyStatus], strategy: KeyStrategy) -> NextKey | None:
    """Return the key that a process started now would use."""
    if not keys:
        return None
    ring = KeyRing([one.key for one in keys], strategy)
    for one in keys:
        if one.cooldown:
            ring.cool_until(one.key, one.cooldown)
    index = [one.key for one in keys].index(ring.next_key(0.0))
    ready = [one for one in keys if not one.cooldown]
    if len(keys) == 1:
        return NextKey(index, "the only key")
    if not ready:
        return NextKey(index, "all keys are on cooldown; this one is ready soonest")
    if len(ready) == 1:
        return NextKey(index, "all other keys are on cooldown")
    if strategy is KeyStrategy.RANDOM:
        return NextKey(index, f"one of {len(ready)}, at random")
    return NextKey(index, f"the first key that is ready ({strategy})")
