"""SMS over the emulated API of Twilio: the contract, the documented rules, and no loss."""

from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from emulators.sms.server import NUMBER, SERVICE, TOKEN, EmulatedMessage, EmulatedTwilio
from hermes.channels.account import BadToken
from hermes.channels.sms.setup import check_account
from hermes.ports.channel import Inbound, NotSent, Outbound, TargetGone, Throttled
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import (
    Admission,
    ChannelBench,
    ChannelContract,
    PlatformEvents,
    PlatformFaults,
    PlatformFiles,
    listening,
    text_of,
)
from support.sms import ANN, HOME, PUBLIC_URL, VARIABLES, SmsBench, sms_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[SmsBench]:
    async with sms_bench(tmp_path) as one:
        yield one


async def received_later(
    folder: Path,
    twilio: EmulatedTwilio,
    count: int,
    env: Mapping[str, str] | None = None,
    failing: int = 0,
) -> list[Inbound]:
    """Run the channel again until it has delivered so many messages."""
    received: list[Inbound] = []
    whole = anyio.Event()

    async def deliver(update: Inbound) -> None:
        received.append(update)
        if len(received) == count:
            whole.set()

    async with sms_bench(folder, twilio, env) as one, anyio.create_task_group() as group:
        one.server.failing = failing
        group.start_soon(one.channel.run, deliver)
        await whole.wait()
        group.cancel_scope.cancel()
    return received


class TestSmsChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with sms_bench(tmp_path, admits=admission) as one:

            async def send_file(name: str, data: bytes) -> None:
                message = one.twilio.add(ANN, NUMBER, "look")
                message.files.append(("image/png", data))
                assert await one.post(message) == 200

            async def arrive(text: str) -> None:
                assert await one.post(one.twilio.add(ANN, NUMBER, text)) == 200

            async def again() -> None:
                assert await one.post(one.twilio.messages[-1]) == 200

            async def shown(address: Address) -> list[str]:
                return [message.body for message in one.twilio.sent(address.chat)]

            def throttled() -> None:
                one.server.failing = 20429

            async def unreadable() -> None:
                message = EmulatedMessage("SM0", "", NUMBER, "hello", datetime.now(UTC))
                assert await one.post(message) == 200

            faults = PlatformFaults(unreachable=one.server.stop_listening, throttled=throttled)
            events = PlatformEvents(unreadable=unreadable)
            blobs = tmp_path / "cache" / "blobs"
            files = PlatformFiles(send=send_file, admission=admission, folder=blobs)
            yield ChannelBench(
                one.channel, HOME, arrive, shown, again, events, faults=faults, files=files
            )


@pytest.mark.parametrize(
    ("chat", "text", "error"),
    [
        ("12", "hi", TargetGone),
        (ANN, "", NotSent),
        (ANN, "x" * 1601, NotSent),
        ("+15559990000", "hi", TargetGone),
    ],
    ids=["no phone number", "empty", "too long", "opted out"],
)
async def test_refused_message_was_certainly_not_sent(
    bench: SmsBench, chat: str, text: str, error: type[NotSent]
) -> None:
    bench.twilio.opted_out.add("+15559990000")
    with pytest.raises(error):
        await bench.channel.send(Address("sms", chat), Outbound((Text(text),)))
    assert bench.twilio.messages == []


async def test_too_many_requests_say_how_long_to_wait(bench: SmsBench) -> None:
    bench.server.failing = 20429
    with pytest.raises(Throttled) as caught:
        await bench.channel.send(HOME, Outbound((Text("hi"),)))
    assert caught.value.wait == 3


async def test_call_without_a_valid_signature_is_refused(bench: SmsBench) -> None:
    message = bench.twilio.add(ANN, NUMBER, "let me in")
    async with listening(bench.channel) as received:
        assert await bench.post(message, token="2" * 32) == 403
    assert received == []


async def test_signature_may_name_the_port(tmp_path: Path) -> None:
    url = {"SMS_WEBHOOK_URL": "https://sms.example.com:443/hook"}
    async with sms_bench(tmp_path, env=url) as one, listening(one.channel) as received:
        assert await one.post(one.twilio.add(ANN, NUMBER, "hi")) == 200
        assert len(received) == 1


async def test_words_that_twilio_answers_itself_are_ignored(bench: SmsBench) -> None:
    async with listening(bench.channel) as received:
        for text in ("Stop ", "HELP", "yes"):
            assert await bench.post(bench.twilio.add(ANN, NUMBER, text)) == 200
    assert [text_of(update) for update in received] == ["yes"]


async def test_status_callback_is_not_a_message(bench: SmsBench) -> None:
    async with listening(bench.channel) as received:
        sent = bench.twilio.add(NUMBER, ANN, "an answer")
        assert await bench.post(sent, SmsStatus="delivered") == 200
    assert received == []


async def test_messaging_service_sends_and_reads_only_its_own_messages(tmp_path: Path) -> None:
    twilio = EmulatedTwilio()
    env = {"TWILIO_PHONE_NUMBER": SERVICE}
    async with sms_bench(tmp_path, twilio, env) as one:
        receipt = await one.channel.send(HOME, Outbound((Text("hi"),)))
        assert receipt.id == twilio.messages[0].sid
        async with listening(one.channel):
            await one.server.until(lambda: "list" in one.server.calls)
    for text, service in (("to another number", None), ("to us", SERVICE)):
        twilio.add(ANN, NUMBER, text).service = service
    assert [text_of(one) for one in await received_later(tmp_path, twilio, 1, env)] == ["to us"]


async def test_message_is_delivered_if_its_files_cannot_be_listed(tmp_path: Path) -> None:
    twilio = EmulatedTwilio()
    async with sms_bench(tmp_path, twilio) as one, listening(one.channel):
        await one.server.until(lambda: "list" in one.server.calls)
    twilio.add(ANN, NUMBER, "look").files.append(("image/png", b"PNG"))
    twilio.add(ANN, NUMBER, "and this")
    later = await received_later(tmp_path, twilio, 2, failing=20404)
    assert [text_of(one) for one in later] == ["look", "and this"]


async def test_position_is_twilios_time(tmp_path: Path) -> None:
    """A clock that is an hour fast must not skip messages."""
    twilio, clock = EmulatedTwilio(), FakeClock(datetime.now(UTC) + timedelta(hours=1))
    async with sms_bench(tmp_path, twilio, clock=clock) as one, listening(one.channel):
        await one.server.until(lambda: "list" in one.server.calls)
        while not (tmp_path / "cache" / "sms" / "sms.json").exists():
            await anyio.lowlevel.checkpoint()
    twilio.pass_time(timedelta(minutes=1))
    twilio.add(ANN, NUMBER, "missed")
    assert [text_of(one) for one in await received_later(tmp_path, twilio, 1)] == ["missed"]


async def test_picture_is_received(bench: SmsBench) -> None:
    message = bench.twilio.add(ANN, NUMBER, "look")
    message.files.append(("image/png", b"\x89PNG"))
    async with listening(bench.channel) as received:
        assert await bench.post(message) == 200
    text, picture = received[0].parts
    assert text == Text("look")
    assert isinstance(picture, Media)
    assert picture.media_type == "image/png"


async def test_messages_sent_while_down_are_fetched_once_and_in_order(tmp_path: Path) -> None:
    twilio = EmulatedTwilio()
    twilio.add(ANN, NUMBER, "long before").sent_at -= timedelta(days=2)
    async with sms_bench(tmp_path, twilio) as one, listening(one.channel) as received:
        await one.post(twilio.add(ANN, NUMBER, "first"))
    texts = [f"missed {number}" for number in range(5)]
    for text in texts:
        twilio.pass_time(timedelta(seconds=1))
        twilio.add(ANN, NUMBER, text).files.append(("image/png", b"\x89PNG"))
    later = await received_later(tmp_path, twilio, 6)
    assert [text_of(update) for update in later][-5:] == texts
    # The gateway recognizes what it has seen by the key.
    assert later[0].key == received[0].key
    assert all(isinstance(update.parts[-1], Media) for update in later[1:])


async def test_wrong_login_is_named(tmp_path: Path) -> None:
    async with sms_bench(tmp_path, env={"TWILIO_AUTH_TOKEN": "3" * 32}) as one:
        with pytest.raises(BadToken) as caught:
            await one.channel.send(HOME, Outbound((Text("hi"),)))
    assert "3" * 32 not in str(caught.value)


async def test_token_can_be_replaced(tmp_path: Path) -> None:
    async with sms_bench(tmp_path, env={"TWILIO_AUTH_TOKEN": "3" * 32}) as one:
        one.env["TWILIO_AUTH_TOKEN"] = TOKEN
        async with listening(one.channel) as received:
            await one.server.until(lambda: "list" in one.server.calls)
            assert await one.post(one.twilio.add(ANN, NUMBER, "hello")) == 200
            await one.channel.send(HOME, Outbound((Text("hi"),)))
    assert [text_of(update) for update in received] == ["hello"]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"TWILIO_PHONE_NUMBER": "me"}, "TWILIO_PHONE_NUMBER must be"),
        ({"TWILIO_ACCOUNT_SID": "me"}, "TWILIO_ACCOUNT_SID must be"),
        ({"TWILIO_AUTH_TOKEN": ""}, "needs TWILIO_AUTH_TOKEN"),
        ({"SMS_WEBHOOK_URL": ""}, "needs SMS_WEBHOOK_URL"),
        ({"SMS_WEBHOOK_URL": "https://a:b/c"}, "SMS_WEBHOOK_URL must be"),
    ],
)
async def test_wrong_settings_are_refused(
    tmp_path: Path, env: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with sms_bench(tmp_path, env=env):
            pass


async def test_setup_lists_missing_settings(bench: SmsBench) -> None:
    extra = {"base_url": bench.server.url}
    assert (await check_account(TOKEN, extra, VARIABLES)).notes == ()
    bench.twilio.trial, bench.twilio.sms_url = True, "https://old.example.com"
    notes = (await check_account(TOKEN, extra, VARIABLES)).notes
    assert any(PUBLIC_URL in note for note in notes)
    assert any("trial" in note for note in notes)
    other = {**VARIABLES, "TWILIO_PHONE_NUMBER": "+15550000009"}
    assert "+15550000009" in (await check_account(TOKEN, extra, other)).notes[0]
    with pytest.raises(BadToken):
        await check_account("9" * 32, extra, VARIABLES)
