"""Rests of keys that outlive the process that ordered them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from anyio.to_thread import run_sync

from hermes.kit.clock import Clock
from hermes.models.auth_file import AuthFile, Rest, fingerprint
from hermes.schema.errors import ConfigError, Unauthorized

log = logging.getLogger(__name__)


class AuthMemory:
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
            rest = Rest(now.timestamp() + seconds, why)
            self._file.rest(self._provider, key, rest, now)
