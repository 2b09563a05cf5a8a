"""The Home Assistant channel on the emulator: the contract, filters, and changes missed."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec import Struct

from emulators.homeassistant.server import (
    TOKEN,
    EmulatedHome,
    HomeAssistantServer,
    serve_home,
)
from hermes.channels.account import BadToken
from hermes.channels.homeassistant import EVENTS_CHAT
from hermes.channels.homeassistant.channel import HomeAssistantChannel, open_channel
from hermes.channels.homeassistant.setup import check_account
from hermes.kit.clock import SystemClock
from hermes.ports.channel import Inbound, InboundRefused, NotSent, Offline, Outbound, TargetGone
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import (
    TIMEOUT,
    ChannelBench,
    ChannelContract,
    PlatformEvents,
    PlatformFaults,
    listening,
    text_of,
)
from support.channel_deps import new_deps

HOME = Address("homeassistant", EVENTS_CHAT)
LIGHT = "light.kitchen"
ESCAPED = re.compile(r"\\([\\`*_~|\[\]#>+<&\-])")


class QuickClock(SystemClock):
    """Pauses are a thousand times shorter."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 1000)


class HomeBench(Struct, frozen=True):
    channel: HomeAssistantChannel
    server: HomeAssistantServer
    home: EmulatedHome
    env: dict[str, str]


@asynccontextmanager
async def home_bench(
    folder: Path,
    home: EmulatedHome | None = None,
    extra: Mapping[str, object] | None = None,
    token: str = TOKEN,
) -> AsyncGenerator[HomeBench]:
    home = home or EmulatedHome()
    async with serve_home(home) as server:
        arguments = {"watch_domains": ["light", "sensor"], **(extra or {})}
        env = {"HASS_URL": server.url, "HASS_TOKEN": token}
        deps = new_deps("homeassistant", folder, extra=arguments, env=env, clock=QuickClock())
        async with open_channel(deps) as channel:
            yield HomeBench(channel, server, home, env)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[HomeBench]:
    async with home_bench(tmp_path) as one:
        yield one


class TestHomeAssistantChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        async with home_bench(tmp_path) as one:

            async def arrive(text: str) -> None:
                await one.server.push(one.home.say(text))

            async def again() -> None:
                await one.server.push(one.home.events[-1])

            async def shown(address: Address) -> list[str]:
                texts = one.home.notifications.values()
                return [ESCAPED.sub(r"\1", text) for text in texts]

            def throttled() -> None:
                one.server.failing = 429

            async def unreadable() -> None:
                await one.server.push({"event_type": "hermes_message", "data": {"message": 5}})

            faults = PlatformFaults(unreachable=one.server.stop_listening, throttled=throttled)
            events = PlatformEvents(unreadable=unreadable)
            yield ChannelBench(one.channel, HOME, arrive, shown, again, events, faults=faults)


def _states(received: list[Inbound]) -> list[str]:
    return [text_of(one).rpartition(" to ")[2].removesuffix(".") for one in received]


async def test_change_is_a_sentence_with_names_and_units(bench: HomeBench) -> None:
    attributes = {"unit_of_measurement": "°C", "friendly_name": "Oven"}
    bench.home.set("sensor.oven", "20", **attributes)
    async with listening(bench.channel) as received:
        await bench.server.change("sensor.oven", "180", **attributes)
    assert [text_of(one) for one in received] == [
        "[Home Assistant] Oven (sensor.oven) changed from 20 °C to 180 °C."
    ]


@pytest.mark.parametrize(
    ("extra", "reported"),
    [
        ({}, [LIGHT]),
        ({"watch_domains": [], "watch_entities": ["lock.door"]}, ["lock.door"]),
        ({"ignore_entities": [LIGHT]}, []),
        ({"watch_domains": [], "watch_all": True, "ignore_entities": [LIGHT]}, ["lock.door"]),
        ({"watch_domains": []}, []),
    ],
    ids=["domain", "entity", "ignored", "all but one", "nothing"],
)
async def test_only_watched_devices_are_reported(
    tmp_path: Path, extra: dict[str, object], reported: list[str]
) -> None:
    async with home_bench(tmp_path, extra=extra) as one, listening(one.channel) as received:
        for device in (LIGHT, "lock.door"):
            await one.server.change(device, "on")
    assert [device for device in (LIGHT, "lock.door") for update in received
            if device in text_of(update)] == reported  # fmt: skip


async def test_attributes_outages_and_quick_changes_are_not_reported(tmp_path: Path) -> None:
    extra = {"cooldown_seconds": 90}
    async with home_bench(tmp_path, extra=extra) as one, listening(one.channel) as received:
        for state in ("on", "on", "unavailable", "off", "on"):
            await one.server.change(LIGHT, state)
    # Changes are a minute apart.
    assert [text_of(update).rpartition(" to ")[2] for update in received] == ["on.", "off."]


@pytest.mark.parametrize("behind", [timedelta(0), timedelta(days=1)], ids=["", "clock behind"])
async def test_changes_while_down_are_reported_once(tmp_path: Path, behind: timedelta) -> None:
    home = EmulatedHome()
    home.time -= behind
    home.set("light.long_before", "on")
    async with home_bench(tmp_path, home) as one, listening(one.channel) as received:
        await one.server.change(LIGHT, "on")
    home.set("light.hall", "on")
    home.set("lock.door", "open")
    async with home_bench(tmp_path, home) as one, listening(one.channel) as later:
        await one.server.change("sensor.last", "1")
    assert len(received) == 1
    assert ["light.hall" in text_of(one) for one in later] == [True, False]


async def test_lost_connection_is_replaced_and_nothing_is_lost(bench: HomeBench) -> None:
    async with listening(bench.channel) as received:
        await bench.server.change(LIGHT, "on")
        bench.home.set(LIGHT, "off")
        await bench.server.disconnect()
        await bench.server.change("sensor.last", "1")
    assert _states(received) == ["on", "off", "1"]


async def test_event_before_the_states_does_not_hide_a_missed_change(bench: HomeBench) -> None:
    async with listening(bench.channel) as received:
        await bench.server.change(LIGHT, "on")
        bench.home.set(LIGHT, "off")
        bench.server.early.append(bench.home.set("sensor.first", "1"))
        await bench.server.disconnect()
        await bench.server.change("sensor.last", "2")
    assert _states(received) == ["on", "1", "off", "2"]


async def test_missed_change_at_the_time_of_the_last_reported_one(bench: HomeBench) -> None:
    async with listening(bench.channel) as received:
        await bench.server.change(LIGHT, "on")
        bench.home.pause = timedelta(0)
        bench.home.set("sensor.oven", "180")
        await bench.server.disconnect()
        await bench.server.change("sensor.last", "1")
    assert sorted(_states(received)) == ["1", "180", "on"]


async def test_restart_of_home_assistant_changes_nothing(tmp_path: Path) -> None:
    home = EmulatedHome()
    home.set("light.hall", "off")
    async with home_bench(tmp_path, home) as one, listening(one.channel) as received:
        await one.server.change(LIGHT, "on")
        for state in ("unavailable", "on"):
            await one.server.change(LIGHT, state)
        home.restart()
        await one.server.disconnect()
        await one.server.change("sensor.last", "1")
    home.restart()
    async with home_bench(tmp_path, home) as one, listening(one.channel) as later:
        for state in ("unavailable", "off"):
            await one.server.change(LIGHT, state)
    assert _states(received) == ["on", "1"]
    assert _states(later) == ["off"]


async def test_messages_of_one_automation_run_differ(bench: HomeBench) -> None:
    async with listening(bench.channel) as received:
        for event in bench.home.say_in_one_run("one", "two"):
            await bench.server.push(event)
        await bench.server.push(bench.home.events[-1])
    keys = [one.key for one in received]
    assert keys[0] != keys[1] == keys[2]


async def test_user_of_a_message_is_only_a_name(bench: HomeBench) -> None:
    """Anybody who can fire events could give the id of an owner."""
    async with listening(bench.channel) as received:
        await bench.server.push(bench.home.say("hi", user="ada"))
    assert [(one.sender, one.about.user_name) for one in received] == [("homeassistant", "ada")]


async def test_refused_message_is_delivered_later(bench: HomeBench) -> None:
    attempts: list[str] = []

    async def deliver(update: Inbound) -> None:
        attempts.append(text_of(update))
        if len(attempts) == 1:
            raise InboundRefused("Too many messages.", wait=0.01)

    async with anyio.create_task_group() as group:
        group.start_soon(bench.channel.run, deliver)
        with anyio.fail_after(TIMEOUT):
            await bench.server.push(bench.home.say("hi"))
        group.cancel_scope.cancel()
    assert attempts == ["hi", "hi"]


async def test_failure_of_the_gateway_is_not_an_unreadable_event(bench: HomeBench) -> None:
    async def deliver(update: Inbound) -> None:
        raise msgspec.ValidationError(update.key)

    async with anyio.create_task_group() as group:
        group.start_soon(bench.server.push, bench.home.say("hi"))
        with anyio.fail_after(TIMEOUT), pytest.raises(msgspec.ValidationError):
            await bench.channel.run(deliver)
        group.cancel_scope.cancel()


async def test_token_without_administrator_rights_receives_changes(
    bench: HomeBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.home.admin = False
    async with listening(bench.channel) as received:
        await bench.server.change(LIGHT, "on")
    assert _states(received) == ["on"]
    assert "administrator" in caplog.text


async def test_refused_states_end_the_channel(bench: HomeBench) -> None:
    """Not an endless loop of connections that look healthy."""
    bench.server.refuses_states = True
    with anyio.fail_after(TIMEOUT), pytest.raises(Offline, match="refused"):
        await bench.channel.run(lambda update: anyio.lowlevel.checkpoint())


async def test_post_can_go_to_a_notify_service(bench: HomeBench) -> None:
    for chat in ("notify", "notify.mobile_app_phone"):
        await bench.channel.send(Address("homeassistant", chat), Outbound((Text("hi"),)))
    assert bench.home.messages == [("notify", "hi"), ("mobile_app_phone", "hi")]


async def test_notify_service_may_come_later(bench: HomeBench) -> None:
    """It does not exist yet while Home Assistant starts."""
    other = Address("homeassistant", "other")
    with pytest.raises(NotSent, match=r"notify\.other") as refused:
        await bench.channel.send(other, Outbound((Text("hi"),)))
    assert not isinstance(refused.value, TargetGone)
    bench.home.services.add("other")
    await bench.channel.send(other, Outbound((Text("hi"),)))
    assert bench.home.messages == [("other", "hi")]


async def test_repeated_post_replaces_the_notification(bench: HomeBench) -> None:
    for text in ("hi", "hi (recovered)"):
        await bench.channel.send(HOME, Outbound((Text(text),), key="turn:1"))
    assert list(bench.home.notifications.values()) == ["hi (recovered)"]


async def test_wrong_token_and_settings_are_named(tmp_path: Path) -> None:
    async with home_bench(tmp_path, token="wrong") as one:
        with pytest.raises(BadToken):
            await one.channel.send(HOME, Outbound((Text("hi"),)))
        with pytest.raises(BadToken):
            await one.channel.run(lambda update: anyio.lowlevel.checkpoint())
    with pytest.raises(ConfigError, match="HASS_TOKEN"):
        async with home_bench(tmp_path, token=""):
            pass


async def test_replaced_token_is_used_by_posts_and_by_the_next_connection(tmp_path: Path) -> None:
    async with home_bench(tmp_path, token="revoked") as one:
        with pytest.raises(BadToken):
            await one.channel.run(lambda update: anyio.lowlevel.checkpoint())
        one.env["HASS_TOKEN"] = TOKEN
        with pytest.raises(BadToken):
            await one.channel.send(HOME, Outbound((Text("lost"),)))
        await one.channel.send(HOME, Outbound((Text("hi"),)))
        async with listening(one.channel) as received:
            await one.server.push(one.home.say("after"))
    assert list(one.home.notifications.values()) == ["hi"]
    assert [text_of(update) for update in received] == ["after"]


async def test_setup_names_the_home_and_that_nothing_is_watched(bench: HomeBench) -> None:
    env = {"HASS_URL": bench.server.url}
    check = await check_account(TOKEN, {}, env)
    assert check.account == "Home, version 2026.11.0"
    assert "watch_domains" in check.notes[0]
    assert (await check_account(TOKEN, {"watch_all": True}, env)).notes == ()
    with pytest.raises(BadToken):
        await check_account("wrong", {}, env)
