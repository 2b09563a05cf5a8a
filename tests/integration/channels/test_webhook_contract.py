"""The webhook channel passes the channel contract, and a call goes through a whole gateway."""

import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from hermes.channels import MANIFESTS
from hermes.channels.webhook.channel import NAME, WebhookChannel, open_channel
from hermes.channels.webhook.listener import Listener
from hermes.channels.webhook.routes import read_settings
from hermes.channels.webhook.signatures import Scheme
from hermes.channels.webhook.subscriptions import RouteTable, Subscriptions
from hermes.gateway.messages import Admitted
from hermes.ports.channel import Inbound
from hermes.schema.messages import Trust
from hermes.schema.scope import Address
from hermes.session.keys import SessionSource, build_session_key
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import ChannelBench, ChannelContract
from support.gateway import gateway_harness
from support.polling import pause
from support.webhooks import SECRET, WebhookHarness, webhook_harness

HOME = Address(NAME, "webhook:a:d-1")


class LogLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text.startswith("webhook a, call"):
            self.answers.append(text.partition(": ")[2])


@contextmanager
def answers_logged() -> Generator[list[str]]:
    lines, logger = LogLines(), logging.getLogger("hermes.channels.webhook.channel")
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines.answers
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before)


class TestWebhookChannel(ChannelContract):
    """Messages arrive through a route that delivers them verbatim."""

    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        routes = {"a": {"prompt": "{text}", "deliver": "telegram", "deliver_only": True}}
        settings = read_settings({"routes": routes, "secret": SECRET}, {})
        clock = FakeClock()
        book = RouteTable(settings, Subscriptions(tmp_path / "x.json"))
        channel = WebhookChannel(book, clock)
        async with aiohttp.ClientSession() as session, Listener(clock, port=0) as listener:
            listener.attach("default", channel)
            one = WebhookHarness(listener, clock, session)

            sent: list[tuple[bytes, str]] = []

            async def arrive(text: str) -> None:
                sent.append((msgspec.json.encode({"text": text}), f"d-{len(sent)}"))
                response = await one.call("a", *sent[-1])
                assert response.status == 202

            async def again() -> None:
                assert (await one.call("a", *sent[-1])).code == "duplicate"

            with answers_logged() as answers:

                async def shown(home: Address) -> list[str]:
                    return list(answers)

                yield ChannelBench(channel, HOME, arrive, shown, again)


def test_catalog_contains_the_channel() -> None:
    module, _, attribute = MANIFESTS[NAME].factory.partition(":")
    assert getattr(import_module(module), attribute) is open_channel


class NamedWebhookChannel(WebhookChannel):
    """Uses the channel name that the test gateway expects."""

    name = NAME


def session_key(inbound: Inbound) -> str:
    about = inbound.about
    source = SessionSource(platform=NAME, chat_id=inbound.address.chat, chat_type=about.chat_type)
    return build_session_key(source)


async def admit_guest(inbound: Inbound) -> Admitted:
    return Admitted(key=session_key(inbound), trust=Trust.GUEST)


@pytest.mark.parametrize("scheme", [Scheme.STANDARD, Scheme.V2, Scheme.GITHUB, Scheme.LEGACY])
async def test_call_starts_one_turn_even_after_a_restart(tmp_path: Path, scheme: Scheme) -> None:
    """Also when it is repeated under another id that is not signed."""
    settings = read_settings({"routes": {"a": {"prompt": "Look at {what}"}}, "secret": SECRET}, {})
    book = RouteTable(settings, Subscriptions(tmp_path / "x.json"))
    clock = FakeClock()
    with answers_logged() as answers:
        for start in range(2):
            channel = NamedWebhookChannel(book, clock)
            async with aiohttp.ClientSession() as session, Listener(clock, port=0) as listener:
                listener.attach("default", channel)
                one = WebhookHarness(listener, clock, session)
                delivery = "guid" if scheme is Scheme.STANDARD else f"guid-{start}"
                async with gateway_harness(
                    tmp_path, channel=channel, clock=clock, authorize=admit_guest
                ) as house:
                    codes: list[str] = []
                    with anyio.fail_after(60):
                        while codes[-2:] != ["accepted", "duplicate"]:
                            response = await one.call("a", b'{"what": "this"}', delivery, scheme)
                            codes.append(response.code)
                    assert set(codes) <= {"not_listening", "accepted", "duplicate"}
                    with anyio.fail_after(60):
                        while not answers:
                            await pause()
                    await house.wait_until_idle()
                    assert len(house.model.requests) == (1 if start == 0 else 0)
    (answer,) = answers
    assert answer.startswith("re: The webhook route")
    assert ">this</data-" in answer


async def test_each_call_has_its_own_session_key(tmp_path: Path) -> None:
    async with webhook_harness(tmp_path, {"github": {}}) as harness:
        await harness.call("github", delivery="guid-1")
        assert session_key(harness.inbound[0]) == "agent:main:webhook:webhook:webhook:github:guid-1"
