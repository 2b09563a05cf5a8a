"""Observe what the gateway says in chats and on start in a broken home."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from hermes.app.service.lifecycle import RunOptions
from hermes.app.service.main import run_gateway
from support.chat_platform.server import PlatformServer, serve_platform
from support.cli_process import TEST_TIMEOUT, HermesCli
from support.delivery_check import PROGRESS_PREFIX
from support.faults.homes import FaultHome, ObservedMessages, run_verb
from support.faults.models import SCRIPT
from support.faults.scenarios import (
    STALE_TIMEOUT_KEY,
    ExpectedMessage,
    FaultMoment,
    FaultSwitch,
    Surface,
    split_messages,
)
from support.homes import CHANNEL_NAME, ProfileSettings, write_profile
from support.profile_gateway import profile_gateway

ACCOUNT = "main"
POLL_INTERVAL = 0.02


def gateway_chat(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    with fault_home.scenario.open_fault(fault_home.path) as switch:
        if switch == FaultSwitch():
            yield from anyio.run(_chat_per_fault, fault_home)
        else:
            yield anyio.run(_chat_with_fault, fault_home, switch)


async def _chat_with_fault(fault_home: FaultHome, switch: FaultSwitch) -> ObservedMessages:
    """A message that cannot be stored is not acknowledged; it is answered once that is over."""
    (expected,) = fault_home.scenario.at(Surface.CHAT)
    async with serve_platform() as server:
        write_gateway_home(fault_home, server.url)
        async with profile_gateway(fault_home.path) as tenant:
            supervisor = tenant.gateway.supervisor
            # A fault that waits half a minute each time is tried once only.
            tries = 0 if fault_home.scenario.long else 2

            async def is_listening() -> bool:
                return supervisor.online(CHANNEL_NAME)

            async def is_reported() -> bool:
                again = supervisor.snapshot()[CHANNEL_NAME].failures >= tries
                return bool(final_posts(server, "chat")) and again

            async def is_answered() -> bool:
                return final_posts(server, "chat")[-1:] == [SCRIPT.default.text]

            await wait_until_async(is_listening)
            switch.on()
            server.say(ACCOUNT, "chat", "ann", expected.name)
            await wait_until_async(is_reported)
            messages = final_posts(server, "chat")
            switch.off()
            await wait_until_async(is_answered)
            assert final_posts(server, "chat") == [*messages, SCRIPT.default.text]
    return ObservedMessages(expected, messages)


async def _chat_per_fault(fault_home: FaultHome) -> list[ObservedMessages]:
    """Cause each fault in its own chat, all concurrently."""
    chats = {
        f"chat{number}": expected for number, expected in enumerate(fault_home.scenario.faults)
    }
    async with serve_platform() as server:
        write_gateway_home(fault_home, server.url)
        async with profile_gateway(fault_home.path) as tenant:
            for chat, expected in chats.items():
                server.say(ACCOUNT, chat, "ann", expected.name)
            queues = tenant.app.store.queues

            async def is_settled() -> bool:
                if not all(final_posts(server, chat) for chat in chats):
                    return False
                queue = f"outbox:{CHANNEL_NAME}"
                return not [*await queues.topics("inbox"), *await queues.topics(queue)]

            await wait_until_async(is_settled)
    return [
        ObservedMessages(expected, final_posts(server, chat)) for chat, expected in chats.items()
    ]


async def wait_until_async(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        while not await condition():  # noqa: ASYNC110 - a database tells nobody
            await anyio.sleep(POLL_INTERVAL)


def write_gateway_home(fault_home: FaultHome, platform: str) -> None:
    """Write the scenario as a gateway home with the test platform as its channel."""
    scenario = fault_home.scenario
    env = {
        name: fault_home.env.get(name, "")
        for name in ("OPENAI_BASE_URL", "HERMES_INFERENCE_PROVIDER", "HERMES_INFERENCE_MODEL")
    }
    model = {"default": "", "provider": "", "base_url": ""}
    agent: dict[str, float] = {"api_max_retries": 1}
    if scenario.silence is not None:
        agent[STALE_TIMEOUT_KEY] = scenario.silence
    write_profile(
        fault_home.path,
        ProfileSettings(
            account=ACCOUNT,
            url=platform,
            key=fault_home.env.get("OPENAI_API_KEY", ""),
            env={**env, "MESSAGING_CWD": str(fault_home.work)},
            settings={"model": model, "agent": agent},
        ),
    )


def final_posts(server: PlatformServer, chat: str) -> list[str]:
    """Return the posts without progress messages."""
    shown = [post.text for post in server.platform.posts_in(ACCOUNT, chat)]
    return [text for text in shown if not text.startswith(PROGRESS_PREFIX)]


def gateway_run(fault_home: FaultHome) -> Iterator[ObservedMessages]:
    scenario = fault_home.scenario
    (expected,) = scenario.at(Surface.GATEWAY)
    if scenario.moment is not FaultMoment.OPENING:
        yield from _run_with_taken_port(fault_home, expected)
        return
    context = fault_home.context()
    with scenario.open_fault(fault_home.path) as switch:
        switch.on()
        options = RunOptions(force=True)
        shown, code = run_verb(
            lambda: run_gateway(fault_home.home, fault_home.env, options), context
        )
    yield ObservedMessages(expected, split_messages(shown), code)


def _run_with_taken_port(
    fault_home: FaultHome, expected: ExpectedMessage
) -> Iterator[ObservedMessages]:
    """Run with a port that is in use; the gateway keeps serving everything else."""
    with taken_port(fault_home):
        (fault_home.root / "own").mkdir()
        person = HermesCli(fault_home.root / "own", fault_home.url)
        person.env |= {"HERMES_HOME": str(fault_home.path)}
        with person.running("gateway", "run") as running:
            running.wait_for("Log: ")
            ran = running.send_signal(15)
    messages = [line for line in ran.out.splitlines() if expected.name in line]
    yield ObservedMessages(expected, messages, ran.code)


@contextmanager
def taken_port(fault_home: FaultHome) -> Iterator[None]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = fault_home.path / "config.yaml"
        config.write_text(config.read_text().replace("PORT", str(other.getsockname()[1])))
        yield
