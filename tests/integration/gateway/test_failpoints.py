"""The gateway survives a kill at every failpoint."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct, structs

from hermes.kit.clock import SystemClock
from hermes.store.sqlite import open_store
from support.chat_platform.server import PlatformServer, serve_platform
from support.chat_platform.state import FaultRates
from support.delivery_check import check_delivery, check_outbox, check_store, question_name
from support.failpoints import failpoints
from support.gateway_instances import (
    AnswerWaiter,
    GatewayInstance,
    StartInstance,
    fork_server,
    run_instance,
)
from support.gateway_process import GatewaySpec, single_profile_spec
from support.profile_gateway import session_key_of

AFTER = {
    "commands.before_release": ("commands.stored",),
    "commands.after_release": ("commands.stored",),
    "actor.found_begun": ("recorder.before_end",),
    "actor.settled": ("recorder.before_end",) * 3,
    "recovery.before_close": ("recorder.before_intent",),
    "recovery.after_close": ("recorder.before_intent",),
    "delivery.outcome_unknown": ("delivery.after_send",),
}
"""Failpoints reached only after another process was killed elsewhere."""

PACKAGES = ("gateway/", "session/", "store/", "chat_platform/")
"""Packages a message passes through; failpoints of tools are tested with the tools."""

ACCOUNT = "main"
TRIES = 8
FAULTS = FaultRates(repeated=0.3, shuffled=True)
REFUSING = structs.replace(FAULTS, refused=0.5)
NEEDS_REFUSAL = frozenset({"delivery.not_sent"})
KINDS = (
    "{}",
    '{} use:terminal {{"command": "echo {} >> effects"}}',
    '{} use:terminal {{"command": "sleep 0.3"}}',
    "{} long",
    "/queue {}",
)


def ask(server: PlatformServer, wave: str) -> None:
    """Ask one question of each kind, each in its own chat."""
    said: list[tuple[str, str, str, str]] = []
    for kind, form in enumerate(KINDS):
        name = f"q-{wave}.{kind}"
        said.append((ACCOUNT, f"c{wave}.{kind}", "ann", form.format(name, name)))
    server.platform.say_all(said)
    server.changed()


class Site(Struct, frozen=True):
    """Where the gateway instances run."""

    server: PlatformServer
    answers: AnswerWaiter
    birth: StartInstance


async def crash_at(site: Site, spec: GatewaySpec, wave: int) -> None:
    """Run an instance that recovers, receives a new wave, and is killed."""
    server, answers = site.server, site.answers

    async def die(instance: GatewayInstance) -> None:
        await instance.wait_ready()
        await answers.wait_for_all()
        instance.arm()
        await instance.wait_for_line("armed")
        # Not earlier: refused messages are retried ever more slowly.
        server.platform.fault_rates = REFUSING if spec.die_at in NEEDS_REFUSAL else FAULTS
        # Not every wave reaches the failpoint.
        for attempt in range(TRIES):
            ask(server, f"{wave}.{attempt}")
            await answers.wait_for_all()

    died = await run_instance(structs.replace(spec, armed=False), die, site.birth)
    server.platform.fault_rates = FAULTS
    assert died.killed, f"{spec.die_at} is never passed"


async def crash_while_recovering(site: Site, spec: GatewaySpec) -> None:
    """Run an instance that is killed while recovering."""
    died = await run_instance(spec, GatewayInstance.wait_ready, site.birth)
    assert died.killed, f"{spec.die_at} is never passed"


async def crash_at_every_failpoint(folder: Path, nths: range) -> str:
    places = sorted(name for name, file in failpoints().items() if file.startswith(PACKAGES))
    kills = 0
    fatal: list[str] = []
    async with serve_platform(FAULTS, seed=1) as server, fork_server(folder) as birth:
        spec = single_profile_spec(folder, server.url, ACCOUNT)
        answers = AnswerWaiter(server, folder / "home" / "hermes.db")
        site = Site(server, answers, birth)
        for nth in nths:
            for wave, failpoint in enumerate(places, nth * len(places)):
                first, *others = (*AFTER.get(failpoint, ()), failpoint)
                await crash_at(site, structs.replace(spec, die_at=first, nth=nth), wave)
                for other in others:
                    await crash_while_recovering(site, structs.replace(spec, die_at=other))
                kills += 1 + len(others)
                fatal += [f"q-{wave}."] * (len(others) > 1)

        async def end(instance: GatewayInstance) -> None:
            await instance.wait_ready()
            await answers.wait_for_all()
            await answers.wait_settled()
            instance.end()

        last = await run_instance(spec, end, birth)
    spoken = server.platform.written
    outbox = check_outbox(folder / "home" / "hermes.db", spoken)
    verdict = check_delivery(server.platform, outbox.parked, outbox.receipts)
    async with open_store(folder / "home" / "hermes.db", SystemClock()) as store:
        keys = {one.chat: session_key_of("test", one.chat, "") for one in spoken}
        wrong = outbox.wrong + await check_store(store, spoken, keys, verdict.reported)
        assert wrong + await store.maintenance.integrity() == []
    verdict.check()
    reply = [one for one in spoken if question_name(one.text) in verdict.reported]
    released = [one for one in reply if one.text.startswith("/")]
    # Turns running at several ends of the process are parked; nothing else is.
    set_aside = [one for one in reply if one not in released]
    assert all(question_name(one.text).startswith(tuple(fatal)) for one in set_aside)
    assert last.report is not None
    last.report.check_loop()
    effects = (folder / "work" / "effects").read_text().splitlines()
    assert len(effects) == len(set(effects))
    return f"{len(places)} failpoints, {kills} kills: {verdict}; {last.report.loop}"


@pytest.mark.timeout(900)
async def test_every_failpoint_is_survived(tmp_path: Path) -> None:
    sys.stdout.write(await crash_at_every_failpoint(tmp_path, range(1, 2)))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_every_failpoint_is_survived_repeatedly(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    numbers = await crash_at_every_failpoint(tmp_path, range(1, 11))
    prove(numbers)
