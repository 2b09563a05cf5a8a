"""Keep channels running: restart those that fail or go silent, and report their state."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import StrEnum

import anyio
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.ports.channel import Channel, Inbound, SupportsLiveness
from hermes.ports.ownership import Claim, Workers
from hermes.schema.errors import StoreError
from hermes.schema.scope import platform_of
from hermes.session.keys import platform_in

log = logging.getLogger(__name__)

HandleInbound = Callable[[Inbound], Awaitable[None]]


class ChannelCondition(StrEnum):
    WAITING = "waiting"
    LISTENING = "listening"
    FAILED = "failed"
    SILENT = "deaf"
    PAUSED = "paused"
    STANDBY = "standby"
    CLOSED = "closed"


class ChannelState(Struct, frozen=True, kw_only=True):
    """`heard_at` is the last sign of life, `reason` the last failure."""

    condition: ChannelCondition = ChannelCondition.WAITING
    since: datetime
    heard_at: datetime | None = None
    failures: int = 0
    reason: str = ""


def standby_reason(worker: str) -> str:
    host, _, pid, *_ = [*worker.split("/"), "", ""]
    return f"Process {pid} on {host} receives for this account."


class SupervisorRules(Struct, frozen=True, kw_only=True):
    """How channels are watched and restarted; times are in seconds.

    `silence_limit`: silence after which a channel counts as dead. `check_interval`: time between
    checks for that. `stable_after`: a run of this length resets the count of failures.
    `claim_interval`: time between checks of which worker receives for an account.
    """

    silence_limit: float = 60.0
    check_interval: float = 15.0
    stable_after: float = 60.0
    claim_interval: float = 20.0
    backoff: Backoff = Backoff(base=1.0, cap=60.0)


class Supervisor:
    """Runs each channel whose account no other worker receives for; the others stand by."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        clock: Clock,
        rules: SupervisorRules | None = None,
        *,
        workers: Workers,
    ) -> None:
        self._channels = channels
        self._by_platform: dict[str, set[str]] = {}
        for name in channels:
            self._by_platform.setdefault(platform_of(name), set()).add(name)
        self._workers = workers
        self._claims: dict[str, Claim] = {}
        self._first_claim = {name: anyio.Event() for name in channels}
        self._clock = clock
        self._rules = rules or SupervisorRules()
        self._last_update: dict[str, datetime] = {}
        self._states = {name: ChannelState(since=clock.now()) for name in channels}
        self._scope: anyio.CancelScope | None = None
        self._listening: dict[str, anyio.CancelScope] = {}
        self._paused: dict[str, anyio.Event] = {}

    def online(self, name: str) -> bool:
        return self._states[name].condition is ChannelCondition.LISTENING

    def claims(self, name: str) -> bool:
        """Whether this worker receives for the channel's account."""
        return name in self._claims

    async def claim_free(self) -> None:
        """Claim every account that no other worker receives for."""
        for name in self._channels:
            await self._try_claim(name)

    def serves(self, key: str) -> bool:
        """Whether this worker has a channel for the session, or no other worker can have one."""
        own = self._by_platform.get(platform_in(key))
        return own is None or not own.isdisjoint(self._claims)

    async def wait_claimed(self, name: str) -> bool:
        """Wait until this worker has the account for the first time; False if it had it already.

        A borrowed channel is claimed by the profile that lends it.
        """
        if name not in self._channels or self.claims(name):
            return False
        await self._first_claim[name].wait()
        return True

    def snapshot(self) -> Mapping[str, ChannelState]:
        return {name: self._state(name) for name in self._states}

    def pause(self, name: str) -> None:
        """Stop listening until `resume`; outgoing messages wait."""
        if name in self._channels and name not in self._paused:
            self._paused[name] = anyio.Event()
            if name in self._listening:
                self._listening[name].cancel()

    def resume(self, name: str) -> None:
        if (resumed := self._paused.pop(name, None)) is not None:
            resumed.set()

    def is_paused(self, name: str) -> bool:
        return name in self._paused

    def close(self) -> None:
        """Stop listening; messages being delivered are not acknowledged."""
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, deliver: HandleInbound) -> None:
        """Run until closed or cancelled."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            async with anyio.create_task_group() as group:
                for name in self._channels:
                    group.start_soon(self._keep_running, name, deliver)

    async def _keep_running(self, name: str, deliver: HandleInbound) -> None:
        async def handle(update: Inbound) -> None:
            self._last_update[name] = self._clock.now()
            await deliver(update)

        failures = 0
        try:
            while True:
                await self._claim(name)
                while (resumed := self._paused.get(name)) is not None:
                    self._set(name, ChannelCondition.PAUSED, 0, "Paused.")
                    await resumed.wait()
                with anyio.CancelScope() as scope:
                    self._listening[name] = scope
                    failures = await self._listen_once(name, handle, failures)
        finally:
            self._set(name, ChannelCondition.CLOSED, failures)
            await self._release(name)

    async def _claim(self, name: str) -> None:
        """Stand by until no other worker receives for the account."""
        while not self.claims(name) and not await self._try_claim(name):
            await self._clock.sleep(self._rules.claim_interval)

    async def _try_claim(self, name: str) -> bool:
        try:
            claim = await self._workers.claim(f"channel:{name}")
        except StoreError as error:
            log.warning("cannot claim channel %s: %s", name, error)
            self._set(name, ChannelCondition.FAILED, 0, str(error))
            return False
        if isinstance(claim, str):
            self._set(name, ChannelCondition.STANDBY, 0, standby_reason(claim))
            return False
        self._claims[name] = claim
        self._first_claim[name].set()
        return True

    async def _release(self, name: str) -> None:
        if (claim := self._claims.pop(name, None)) is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self._workers.release(claim)
            except StoreError as error:
                log.info("channel %s stays claimed until this process ends: %s", name, error)

    async def _wait_until_lost(self, name: str) -> None:
        """Return once another worker has taken over the account, such as after this one froze."""
        while claim := self._claims.get(name):
            await self._clock.sleep(self._rules.claim_interval)
            try:
                if not await self._workers.holds(claim):
                    del self._claims[name]
            except StoreError as error:
                log.warning("cannot check the claim of channel %s: %s", name, error)

    async def _listen_once(self, name: str, deliver: HandleInbound, failures: int) -> int:
        """Listen until it fails, then back off; return the number of failures."""
        self._set(name, ChannelCondition.LISTENING, failures)
        started = self._clock.monotonic()
        condition, reason = await self._listen(name, deliver)
        if condition is ChannelCondition.STANDBY:
            self._set(name, condition, 0, reason)
            log.warning("channel %s: %s", name, reason)
            return 0
        lasted = self._clock.monotonic() - started
        failures = 1 if lasted >= self._rules.stable_after else failures + 1
        self._set(name, condition, failures, reason)
        log.warning("channel %s: %s (failure %d)", name, reason, failures)
        await self._clock.sleep(self._rules.backoff.delay(failures))
        return failures

    async def _listen(self, name: str, deliver: HandleInbound) -> tuple[ChannelCondition, str]:
        """Run the channel and return how and why it ended."""
        ends: list[ChannelCondition] = []
        failure: Exception | None = None
        async with anyio.create_task_group() as group:

            async def watch(
                wait: Callable[[str], Awaitable[None]], condition: ChannelCondition
            ) -> None:
                await wait(name)
                ends.append(condition)
                group.cancel_scope.cancel()

            group.start_soon(watch, self._wait_until_silent, ChannelCondition.SILENT)
            group.start_soon(watch, self._wait_until_lost, ChannelCondition.STANDBY)
            try:
                await self._channels[name].run(deliver)
            except Exception as error:  # noqa: BLE001 - a channel may fail in any way; logged below
                failure = error
            group.cancel_scope.cancel()
        if ChannelCondition.STANDBY in ends:
            return ChannelCondition.STANDBY, "Another process has taken over this account."
        if ends:
            limit = self._rules.silence_limit
            return ChannelCondition.SILENT, f"No activity for {limit:g} seconds."
        if failure is not None:
            log.info("channel %s failed", name, exc_info=failure)
            return ChannelCondition.FAILED, str(failure) or type(failure).__name__
        return ChannelCondition.FAILED, "The channel stopped unexpectedly."

    async def _wait_until_silent(self, name: str) -> None:
        channel = self._channels[name]
        if not isinstance(channel, SupportsLiveness):
            await anyio.sleep_forever()
            return
        seen, since = self._last(name), self._clock.monotonic()
        while self._clock.monotonic() - since <= self._rules.silence_limit:
            await self._clock.sleep(self._rules.check_interval)
            last = self._last(name)
            if last is not None and last != seen:
                ago = (self._clock.now() - last).total_seconds()
                # The clock may have been set: a new sign of life is later than the last check.
                ago = ago if 0 <= ago <= self._rules.check_interval else 0.0
                seen, since = last, self._clock.monotonic() - ago

    def _last(self, name: str) -> datetime | None:
        channel = self._channels[name]
        proof = channel.last_seen_at() if isinstance(channel, SupportsLiveness) else None
        known = [at for at in (proof, self._last_update.get(name)) if at is not None]
        return max(known, default=None)

    def _set(self, name: str, condition: ChannelCondition, failures: int, reason: str = "") -> None:
        self._states[name] = ChannelState(
            condition=condition, since=self._clock.now(), failures=failures, reason=reason
        )

    def _is_connecting(self, name: str) -> bool:
        """Whether it was started but has shown no sign of life since."""
        if not self.online(name) or not isinstance(self._channels[name], SupportsLiveness):
            return False
        last = self._last(name)
        return last is None or last < self._states[name].since

    def _state(self, name: str) -> ChannelState:
        state = structs.replace(self._states[name], heard_at=self._last(name))
        if self._is_connecting(name):
            return structs.replace(state, condition=ChannelCondition.WAITING)
        return state
