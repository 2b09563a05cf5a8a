"""Profiles and people in one process learn nothing of each other; and a leak would be seen."""

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from hermes.ports.channel import Caps, Channel, Inbound, Outgoing, Receipt
from hermes.ports.store import Store
from hermes.sandbox.child_env import EnvRules
from hermes.schema.scope import OWNER, Address, Scope
from hermes.session.keys import SessionSource, build_session_key
from hermes.store.sqlite import SqliteStore
from hermes.telemetry.logs import LogShare
from hermes.testing.canaries import Canaries
from hermes.testing.tenants import Walls, tenants

pytestmark = pytest.mark.anyio


async def lives(folder: Path, profiles: int, people: int, steps: int, walls: Walls) -> Canaries:
    async with tenants(folder, profiles, people, walls) as (world, canaries):
        with anyio.fail_after(600):
            await world.live(steps)
    return canaries


async def test_nobody_learns_of_anybody(tmp_path: Path) -> None:
    canaries = await lives(tmp_path, 8, 5, 400, Walls())
    assert list(map(str, canaries.sightings)) == []
    assert canaries.looked > 1000


@pytest.mark.soak
async def test_nobody_ever_learns_of_anybody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    canaries = await lives(tmp_path, 8, 5, 2000, Walls())
    assert list(map(str, canaries.sightings)) == []
    with capsys.disabled():
        sys.stdout.write(f"\n{canaries.looked} places scanned, no foreign canary\n")


def everything(rules: EnvRules, scope: Scope) -> dict[str, str]:
    return dict(rules.process)


def no_redaction(secrets: Sequence[str]):
    return str


def one_room(profile: str, inbound: Inbound) -> str:
    source = SessionSource(platform=inbound.address.channel, chat_id="lobby")
    return build_session_key(source, profile=profile)


def no_profile(profile: str, inbound: Inbound) -> str:
    source = SessionSource(platform=inbound.address.channel, chat_id=inbound.address.chat)
    return build_session_key(source)


class OpenStore(SqliteStore):
    """Shows everybody what is the owner's to see."""

    def seen_by(self, principal: str):
        return super().seen_by(OWNER)


def open_store_of(store: Store) -> Store:
    assert isinstance(store, SqliteStore)
    return OpenStore(store._engine, store._clock)


class LastHeard:
    """Answers in the chat that spoke last, as a channel with one current chat would."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._last = ""

    @property
    def caps(self) -> Caps:
        return self._channel.caps

    async def run(self, deliver):
        async def heard(inbound: Inbound) -> None:
            self._last = inbound.address.chat
            await deliver(inbound)

        await self._channel.run(heard)

    async def send(self, to: Address, post: Outgoing) -> Receipt:
        return await self._channel.send(Address(to.channel, self._last), post)


def one_memory(profile: str, home: Path) -> Path:
    return home.parent / "profile0" / "MEMORY.md"


class Ambient:
    """The last one who asked, for the whole process: what a variable of the environment is."""

    def __init__(self) -> None:
        self.last = ""

    def note(self, inbound: Inbound) -> str:
        self.last = inbound.sender
        return inbound.sender


def ambient() -> Walls:
    one = Ambient()
    return Walls(principal=one.note, whose=lambda: one.last)


LEAKS: dict[str, tuple[Walls, str, str]] = {
    "a child gets our environment": (Walls(env=everything), "secret", "child's environment"),
    "secrets are not masked": (Walls(redactor=no_redaction), "secret", "request"),
    "one session for all of a profile": (Walls(key=one_room), "words", "request"),
    "keys without the profile": (
        Walls(key=no_profile, database=lambda profile: "shared"),
        "words",
        "request",
    ),
    "everybody reads as the owner": (Walls(store=open_store_of), "words", "request"),
    "answers go to whoever spoke last": (Walls(channel=LastHeard), "words", "chat"),
    "logs are shared": (Walls(logs=LogShare.EVERYTHING), "prompt", "logs/agent.log"),
    "one memory for all profiles": (Walls(memory=one_memory), "memory", "request"),
    "one current user for the process": (ambient(), "notes", "request"),
    "one database for all profiles": (
        Walls(database=lambda profile: "profile0"),
        "words",
        "state.db: ",
    ),
}
"""What keeps them apart, each replaced by one that does not, and where that must be seen."""


@pytest.mark.parametrize("leak", LEAKS)
async def test_a_leak_would_be_seen(tmp_path: Path, leak: str) -> None:
    walls, kind, where = LEAKS[leak]
    async with tenants(tmp_path, 3, 3, walls) as (world, canaries):
        # A world that leaks may also never come to rest.
        with anyio.move_on_after(10):
            await world.live(120, at_once=30)
    found = [one for one in canaries.sightings if one.canary.kind == kind]
    assert any(where in one.where for one in found), list(map(str, canaries.sightings))


def test_canaries_are_found_in_disguise() -> None:
    canaries = Canaries()
    token = canaries.plant("a", "secret")
    canaries.look("a/ann", "own", token)
    assert canaries.sightings == []
    for form in (
        token,
        token.encode().hex(),
        f"x{token}",
        __import__("base64").b64encode(b"ab" + token.encode()),
    ):
        before = len(canaries.sightings)
        canaries.look("b/bob", f"form {before}", form)
        assert len(canaries.sightings) == before + 1
