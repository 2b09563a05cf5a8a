"""Ask questions on an emulated platform while its gateway is killed, and check the answers."""

import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import anyio
import msgspec
from msgspec import Struct, structs

from support.chat_platform.state import FakePlatform, PlatformPost, WrittenMessage
from support.delivery_check import (
    UNSETTLED,
    answered_pieces,
    check_delivery,
    check_outbox,
    check_stored_questions,
    question_name,
    unknown_outcomes,
)
from support.failpoints import failpoints
from support.gateway_instances import (
    POLL_INTERVAL,
    GatewayInstance,
    StartInstance,
    run_instance,
)
from support.gateway_process import GatewaySpec

M = TypeVar("M")

MAX_WAITING = 300
"""More would not be answered in the time of one process, because of the platforms' limits."""

ON_THE_WAY = ("actor", "delivery", "intake", "recorder", "recovery", "runner", "sessions", "writer")
"""What a message passes; failpoints elsewhere would let a process answer everything first."""


class Kill(Struct, frozen=True):
    """The process dies when it passes this failpoint for the `nth` time."""

    place: str
    nth: int


THREE_KILLS = (
    Kill("intake.after_store", 60),
    Kill("delivery.after_send", 90),
    Kill("recorder.after_message", 120),
)
"""An update is stored but not acknowledged; a post has no receipt; a turn is under way."""


class Said(Struct, frozen=True):
    """A question that somebody asked."""

    chat: str
    person: str
    text: str


class ServesUntil(Protocol):
    async def until(self, condition: Callable[[], bool]) -> None: ...


class KillRun(Generic[M]):
    """The questions of a run, and the answers that are waited for.

    `changes` are the gateway's posts, again at each change; `read` makes them comparable. `server`
    tells when something has changed, `acknowledged` whether the gateway has taken all updates.
    """

    def __init__(
        self,
        *,
        account: str,
        server: ServesUntil,
        changes: Sequence[M],
        read: Callable[[M], PlatformPost],
        database: Path,
        acknowledged: Callable[[], bool] = lambda: True,
    ) -> None:
        self.said: list[Said] = []
        self._account = account
        self._server = server
        self._changes = changes
        self._read = read
        self._database = database
        self._acknowledged = acknowledged
        self._handled = 0
        self._names: set[str] = set()
        self._seen: set[str] = set()
        self._doubtful: set[str] = set()
        self._started_at = time.monotonic()

    def add(self, one: Said) -> None:
        self.said.append(one)
        self._names.add(question_name(one.text))

    @property
    def waiting(self) -> int:
        """The number of questions that are not answered yet."""
        for one in self._changes[self._handled :]:
            self._seen.update(answered_pieces(self._read(one), {}))
        self._handled = len(self._changes)
        self._names -= self._seen
        return len(self._names)

    async def wait_for_all(self) -> None:
        while True:
            with anyio.move_on_after(POLL_INTERVAL):
                await self._server.until(lambda: not self.waiting and self._acknowledged())
                return
            if self._database.exists():
                self._names.difference_update(check_outbox(self._database).parked)

    async def kill(self, instance: GatewayInstance) -> None:
        """Kill the process once all is answered, if it has not died before."""
        await instance.wait_ready()
        await self.wait_for_all()
        instance.kill()

    async def end(self, instance: GatewayInstance) -> None:
        """End the process once all is answered and settled."""
        await instance.wait_ready()
        await self.wait_for_all()
        while any(error.endswith(UNSETTLED) for error in check_outbox(self._database).wrong):  # noqa: ASYNC110 - another process writes the outbox
            await anyio.sleep(POLL_INTERVAL)
        instance.end()

    def note_kill(self) -> None:
        """Remember what the process was sending when it was killed."""
        self._doubtful |= unknown_outcomes(self._database)

    async def judge(
        self,
        posts: Iterable[PlatformPost],
        keys: Mapping[str, str],
        unconfirmed: Sequence[M] = (),
    ) -> str:
        """Compare what was asked with `posts` and the store, and return the counts.

        `keys` are sessions by chat. Copies are allowed of what a killed process was sending, and of
        the posts that the platform left `unconfirmed`.
        """
        truth = FakePlatform()
        truth.written += [
            WrittenMessage(one.text, self._account, one.chat, one.person, one.text)
            for one in self.said
        ]
        truth.posts.update({post.id: post for post in posts})
        report = check_delivery(truth, check_outbox(self._database).parked)
        wrong = await check_stored_questions(self._database, truth.written, keys)
        report.check()
        lost = {piece for one in unconfirmed for piece in answered_pieces(self._read(one), {})}
        if unexpected := {*report.copies} - self._doubtful - lost:
            wrong.append(f"copies without a reason: {sorted(unexpected)}")
        if wrong:
            raise AssertionError(wrong)
        seconds = time.monotonic() - self._started_at
        return (
            f"{report}; {len(self._doubtful)} were being sent at a kill, {len(unconfirmed)} "
            f"posts unconfirmed; {seconds:.0f} s"
        )


async def run_with_kills(
    run: KillRun[M],
    spec: GatewaySpec,
    start: StartInstance,
    ask: Callable[[int], Awaitable[None]],
    *,
    updates: int,
    kills: Sequence[Kill],
    listening: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Ask in parts; in each the gateway dies.

    If `listening` waits until the gateway listens, two thirds of a part are asked then; what is not
    asked when it dies belongs to the next part. A question must be asked even if it is cancelled.
    """
    for number, kill in enumerate(kills, 1):
        share = updates * number // len(kills) - len(run.said)
        before = share // 3 if listening else share
        await ask(before)

        async def act(instance: GatewayInstance, more: int = share - before) -> None:
            if listening:
                await instance.wait_ready()
                await listening()
                await ask(more)
            await run.kill(instance)

        plan = structs.replace(spec, die_at=kill.place, nth=kill.nth)
        if not (await run_instance(plan, act, start)).killed:
            raise AssertionError("The gateway ended by itself.")
        run.note_kill()
        if run.waiting > MAX_WAITING:
            await run_instance(spec, run.end, start)

    async def finish(instance: GatewayInstance) -> None:
        if listening:
            await instance.wait_ready()
            await listening()
            await ask(updates - len(run.said))
        await run.end(instance)

    if (await run_instance(spec, finish, start)).report is None:
        raise AssertionError("The last gateway did not end in order.")


def drawn_kills(number: int, seed: int) -> list[Kill]:
    """So many kills at places that the seed chooses."""
    chance = random.Random(seed)  # noqa: S311 - must be repeatable
    places = [name for name in sorted(failpoints()) if name.partition(".")[0] in ON_THE_WAY]
    return [Kill(chance.choice(places), chance.randrange(1, 60)) for _ in range(number)]


def write_home(
    folder: Path,
    platform: str,
    *,
    model_url: str,
    extra: Mapping[str, object],
    variables: Mapping[str, str],
    settings: Mapping[str, object] | None = None,
    people: Sequence[str] = (),
) -> GatewaySpec:
    """Write the home of a gateway on an emulator and return its spec; the first one is owner."""
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    access = {
        "allow_from": [*people],
        "allow_admin_from": [*people][:1],
        "group_allow_admin_from": [*people][:1],
    }
    config: dict[str, object] = {
        "model": {"default": "mock", "provider": "openai", "base_url": f"{model_url}/main/v1"},
        "platforms": {platform: {"extra": {**access, **extra}}},
        "gateway": {"restart_loop_guard": {"enabled": False}, "respawn_storm": {"enabled": False}},
        "display": {"busy_input_mode": "queue"},
        **(settings or {}),
    }
    (home / "config.yaml").write_bytes(msgspec.json.format(msgspec.json.encode(config)))
    every = {"OPENAI_API_KEY": "sk-none-of-ours", "MESSAGING_CWD": str(work), **variables}
    (home / ".env").write_text("".join(f"{name}={value}\n" for name, value in every.items()))
    return GatewaySpec(folder=str(folder), home=str(home))
