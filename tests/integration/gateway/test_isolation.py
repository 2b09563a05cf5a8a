"""Profiles and users in one process learn nothing of each other, and leaks are detected."""

import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from support.canaries import Canaries
from support.delivery_check import check_delivery
from support.multi_profile import (
    IsolationOptions,
    MultiProfileGateway,
    multi_profile_gateway,
)
from support.preloaded_gateway import preloaded_instance

TIMEOUT = 600.0


async def run_isolated(folder: Path, profiles: int, people: int, steps: int) -> str:
    with anyio.fail_after(TIMEOUT):
        async with multi_profile_gateway(folder, profiles, people, start=preloaded_instance) as (
            world,
            canaries,
        ):
            await world.run_steps(steps)
    assert list(map(str, canaries.sightings)) == []
    assert canaries.scans > steps
    verdict = check_delivery(world.server.platform)
    verdict.check()
    (report,) = world.reports
    report.check_loop()
    return (
        f"{profiles} profiles, {people} people, {world.steps} steps: {canaries.scans} places "
        f"scanned, no foreign canary; {verdict}; {report.loop}"
    )


async def test_profiles_and_users_are_isolated(tmp_path: Path) -> None:
    sys.stdout.write(await run_isolated(tmp_path, 8, 5, 200))


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_profiles_and_users_are_isolated_in_a_long_run(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    numbers = await run_isolated(tmp_path, 8, 5, 2000)
    prove(numbers)


ROUTE = {"platform": "test", "chat_id": "person0", "profile": "profile1"}
HANDED_ON = {"terminal": {"env_passthrough": ["OPENAI_API_KEY"]}}
LEAKS: dict[str, tuple[IsolationOptions, str, str]] = {
    "a child gets our keys": (
        IsolationOptions(settings=HANDED_ON),
        "key",
        "child's environment",
    ),
    "secrets are not masked": (
        IsolationOptions(settings={"security": {"redact_secrets": False}, **HANDED_ON}),
        "key",
        "request",
    ),
    "one session for all in a group": (
        IsolationOptions(settings={"group_sessions_per_user": False}),
        "words",
        "request",
    ),
    "keys of sessions without the profile": (
        # Only one of the profiles receives for an account in a shared database.
        IsolationOptions(spaces=False, databases=False),
        "words",
        "hermes.db: ",
    ),
    "one database for all profiles": (IsolationOptions(databases=False), "words", "hermes.db: "),
    "everybody reads as the owner": (IsolationOptions(principals=False), "words", "chat"),
    "answers go to whoever spoke last": (
        IsolationOptions(factory="support.multi_profile:open_last_chat_channel"),
        "words",
        "chat",
    ),
    "one current user for the process": (
        IsolationOptions(factory="support.multi_profile:open_last_user_channel"),
        "name",
        "child's environment",
    ),
    "logs are shared": (IsolationOptions(logs=False), "prompt", "logs/agent.log"),
    "one prompt for all profiles": (IsolationOptions(prompts=False), "prompt", "request"),
    "one key for all profiles": (IsolationOptions(keys=False), "key", "authorization"),
    "chats are routed to another profile": (
        IsolationOptions(settings={"gateway": {"profile_routes": [ROUTE]}}),
        "words",
        "request",
    ),
}
"""The isolation measures, each disabled in turn, and where the leak must be detected."""


async def run_steps(world: MultiProfileGateway, options: IsolationOptions) -> None:
    """With one database some messages are never answered; a few answers fill it."""
    async with anyio.create_task_group() as group:
        group.start_soon(world.run_steps, 60, 20)
        if not options.databases:
            await world.server.until(lambda: len(world.server.platform.posts) >= 6)
            group.cancel_scope.cancel()


@pytest.mark.parametrize("leak", LEAKS)
async def test_leak_is_detected(tmp_path: Path, leak: str) -> None:
    walls, kind, where = LEAKS[leak]
    with anyio.fail_after(TIMEOUT):
        async with multi_profile_gateway(tmp_path, 3, 3, walls, start=preloaded_instance) as (
            world,
            canaries,
        ):
            # A leaking setup may also never become idle.
            with anyio.move_on_after(60):
                await run_steps(world, walls)
    found = [one for one in canaries.sightings if one.canary.kind == kind]
    assert any(where in one.where for one in found), list(map(str, canaries.sightings))


def test_encoded_canaries_are_found() -> None:
    canaries = Canaries()
    token = canaries.plant("a", "secret")
    canaries.scan("a/ann", "own", token)
    assert canaries.sightings == []
    for form in (
        token,
        token.encode().hex(),
        f"x{token}",
        b64encode(b"ab" + token.encode()),
    ):
        before = len(canaries.sightings)
        canaries.scan("b/bob", f"form {before}", form)
        assert len(canaries.sightings) == before + 1
