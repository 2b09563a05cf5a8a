"""Rests of keys that outlive the process that ordered them."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from anyio.to_thread import run_sync

from hermes.kit.clock import Clock
from hermes.models.auth_file import AuthFile, Rest, fingerprint
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)


class AuthMemory:
    """Implements `keys.KeyMemory` for one provider. What cannot be noted is only logged."""

    def __init__(self, file: AuthFile, provider: str, clock: Clock) -> None:
        self._file = file
        self._provider = provider
        self._clock = clock

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

    async def rested(self, key: str, seconds: float, why: str) -> None:
        now = self._clock.now()
        rest = Rest(now.timestamp() + seconds, why)
        try:
            await run_sync(partial(self._file.rest, self._provider, key, rest, now))
        except ConfigError as error:
            log.warning("the rest of a key is not noted: %s", error)
