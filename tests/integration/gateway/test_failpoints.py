"""Every failpoint of the house is reached by a kill, and survived."""

import sys
from pathlib import Path

import pytest

from hermes.kit.clock import SystemClock
from hermes.store.sqlite import open_store
from hermes.testing.failpoints import failpoints
from hermes.testing.gateway_process import Spec
from hermes.testing.history import judge, name_of
from hermes.testing.lives import Life, all_is_answered, live
from hermes.testing.platform.server import PlatformServer, serve
from hermes.testing.platform.weather import Weather

pytestmark = pytest.mark.anyio

AFTER = {
    "commands.before_give_back": "commands.put",
    "commands.after_give_back": "commands.put",
    "actor.found_begun": "recorder.before_end",
    "actor.settled": "recorder.before_end",
    "recovery.before_close": "recorder.before_intent",
    "recovery.after_close": "recorder.before_intent",
    "delivery.doubted": "delivery.after_send",
}
"""Places that only a process passes that follows on one killed at another."""

ACCOUNT = "main"
TRIES = 8
WEATHER = Weather(repeated=0.3, shuffled=True, refused=0.3)


def ask(server: PlatformServer, wave: str) -> None:
    """One question of each kind, each in a chat of its own."""
    kinds = ("{}", "{} use:act", "{} use:pause", "{} long", "/queue {}")
    said = [
        (ACCOUNT, f"c{wave}.{kind}", "ann", form.format(f"q-{wave}.{kind}"))
        for kind, form in enumerate(kinds)
    ]
    server.truth.say_all(said)
    server.changed()


async def dies_at(server: PlatformServer, folder: Path, place: str, wave: int, nth: int) -> None:
    """A life that takes up what the one before left, hears a new wave, and dies of it."""
    spec = Spec(url=server.url, folder=str(folder), die_at=place, nth=nth, armed=False)

    async def die(life: Life) -> None:
        await life.says("ready")
        await all_is_answered(server)
        life.arm()
        await life.says("armed")
        # The weather may keep a wave from the place.
        for attempt in range(TRIES):
            ask(server, f"{wave}.{attempt}")
            await all_is_answered(server)

    assert (await live(spec, die)).killed, f"{place} is never passed"


async def dies_recovering(server: PlatformServer, folder: Path, place: str) -> None:
    """A life that dies of what the one before left."""

    async def do_nothing(life: Life) -> None:
        await life.says("ready")

    spec = Spec(url=server.url, folder=str(folder), die_at=place)
    assert (await live(spec, do_nothing)).killed, f"{place} is never passed"


async def die_everywhere(folder: Path, nths: range) -> str:
    places = sorted(failpoints())
    kills = 0
    async with serve(WEATHER, seed=1) as server:
        for nth in nths:
            for wave, place in enumerate(places, nth * len(places)):
                await dies_at(server, folder, AFTER.get(place, place), wave, nth)
                if place in AFTER:
                    await dies_recovering(server, folder, place)
                kills += 1 + (place in AFTER)

        async def end(life: Life) -> None:
            await life.says("ready")
            await all_is_answered(server)
            life.end()

        last = await live(Spec(url=server.url, folder=str(folder)), end)
        verdict = judge(server.truth)
        async with open_store(folder / ACCOUNT / "state.db", SystemClock()) as store:
            assert await store.integrity() == []
            assert not await store.lanes.topics("inbox")
    verdict.check()
    told = [one for one in server.truth.spoken if name_of(one.text) in verdict.told]
    assert all(one.text.startswith("/") for one in told), "only a command may be given back"
    assert last.report is not None
    assert last.report.blocks == []
    effects = (folder / ACCOUNT / "effects").read_text().splitlines()
    assert len(effects) == len(set(effects))
    return f"{len(places)} failpoints, {kills} kills: {verdict}"


async def test_every_failpoint_is_survived(tmp_path: Path) -> None:
    sys.stdout.write(await die_everywhere(tmp_path, range(1, 2)))


@pytest.mark.soak
async def test_every_failpoint_is_survived_at_several_occasions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = await die_everywhere(tmp_path, range(1, 4))
    with capsys.disabled():
        sys.stdout.write(f"\n{numbers}\n")
