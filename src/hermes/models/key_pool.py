"""Rests of keys that outlive the process that ordered them."""

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
    """Implements `keys.KeyMemory` for one provider. What cannot be noted is only logged."""

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

    def resting(self, keys: Sequence[str]) -> Mapping[str, float]:
        now = self._clock.now().timestamp()
        try:
            rests = self._file.rests(self._provider)
        except ConfigError as error:
            log.warning("rests of keys are not known: %s", error)
            return {}
        return {
            key: rest.until - now
            for key in keys
            if (rest := rests.get(fingerprint(key))) and rest.until > now
        }

    async def rested(self, key: str, seconds: float, why: str, *, alone: bool) -> None:
        if not key:
            return
        try:
            await run_sync(partial(self._note, key, seconds, why, alone=alone))
        except ConfigError as error:
            log.warning("the rest of a key is not noted: %s", error)

    def _note(self, key: str, seconds: float, why: str, *, alone: bool) -> None:
        """A token that is refused before its time is renewed rather than left to rest."""
        now = self._clock.now()
        for one in self._file.credentials(self._provider) if why == Unauthorized.code else ():
            if one.access_token == key and one.refresh_token:
                self._file.update(self._provider, one.id, now, expires_at=now.timestamp())
                self._refused()
                return
        if not alone:
            rest = Cooldown(now.timestamp() + seconds, why)
            self._file.rest(self._provider, key, rest, now)


_RENEW_BEFORE = 60.0


class KeyPool:
    """Reads `auth.json` when there is one, and renews the logins in it that are about to end."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = AuthFile(path)
        self._clock = clock
        self._ends = math.inf

    @property
    def is_ending(self) -> bool:
        """Whether a token that was given out is no good much longer."""
        return self._clock.now().timestamp() >= self._ends - _RENEW_BEFORE

    def memory(self, provider: str) -> AuthFileCooldowns:
        return AuthFileCooldowns(self._file, provider, self._clock, self._end)

    def _end(self) -> None:
        self._ends = -math.inf

    def under(self, settings: ModelSettings) -> ModelSettings:
        """The settings with the keys of the pool, as they are."""
        held = self._held()
        return structs.replace(settings, pools=_keys_by_pool(held)) if held else settings

    async def renewed(self, settings: ModelSettings) -> ModelSettings:
        """The same, with no login that is about to end, as far as they can be renewed."""
        held = self._held()
        if not held:
            return settings
        self._ends = math.inf
        for provider, login in settings.logins.items():
            held[provider] = [
                await self._fresh(provider, one, login) for one in held.get(provider, ())
            ]
        return structs.replace(settings, pools=_keys_by_pool(held))

    async def _fresh(self, provider: str, one: Credential, login: DeviceLogin) -> Credential:
        if one.auth_type != OAUTH:
            return one
        from hermes.models.oauth import OAuthClient  # noqa: PLC0415 - few have a login

        try:
            fresh = await OAuthClient(self._file, self._clock).fresh(provider, one, login)
        except ModelError as error:
            # Other providers must not wait for this one; it is tried again soon.
            log.warning("the login at %s is not renewed: %s", provider, error)
            self._ends = min(self._ends, self._clock.now().timestamp() + 2 * _RENEW_BEFORE)
            return one
        self._ends = min(self._ends, fresh.expires or math.inf)
        return fresh

    def _held(self) -> dict[str, list[Credential]]:
        if not self._file.path.exists():
            return {}
        return {name: self._file.credentials(name) for name in self._file.providers()}


def stored_secrets(path: Path) -> list[str]:
    """Every key and token in `auth.json`: none of them may show up in a log."""
    if not path.exists():
        return []
    file = AuthFile(path)
    held = [one for name in file.providers() for one in file.credentials(name)]
    return [secret for one in held for secret in (one.access_token, one.refresh_token) if secret]


def _keys_by_pool(held: Mapping[str, list[Credential]]) -> dict[str, tuple[str, ...]]:
    """By `pool_name`: a key for `custom` that does not say its address is sent nowhere."""
    keys: dict[str, tuple[str, ...]] = {}
    for provider, known in held.items():
        for one in known:
            name = pool_name(provider, one.base_url or "")
            keys[name] = (*keys.get(name, ()), one.access_token)
    return keys
