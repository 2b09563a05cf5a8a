"""Keep key cooldowns across processes, and renew logins before they expire."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync
from msgspec import structs

from hermes.kit.clock import Clock
from hermes.models.auth_file import OAUTH, AuthFile, Cooldown, Credential, fingerprint
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
