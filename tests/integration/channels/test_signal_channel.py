"""Signal on the emulated daemon: recorded errors, groups, people, styles, files, and no loss."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio.lowlevel
import pytest

from emulators.signal.server import (
    IO_FAILED,
    NETWORK,
    NO_ACCOUNT,
    RATE_LIMIT,
    RpcError,
)
from emulators.signal.state import ACCOUNT, ANN, ANN_UUID, GROUP, EmulatedSignal
from hermes.channels.signal.setup import NO_GROUPS, check_account
from hermes.channels.signal.text_styles import styled_text
from hermes.ports.channel import (
    Attachment,
    EditedMessage,
    Inbound,
    Markup,
    NotSent,
    Offline,
    Outbound,
    TargetGone,
    Throttled,
    UnknownOutcome,
)
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from support.signal_cli import HOME, SignalBench, signal_bench

EVERY_GROUP = {"SIGNAL_GROUP_ALLOWED_USERS": "*"}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[SignalBench]:
    async with signal_bench(tmp_path) as one:
        yield one


def post(text: str) -> Outbound:
    return Outbound((Text(text),), plain=text)


async def test_recorded_errors_are_classified(bench: SignalBench) -> None:
    """Error codes: -1 user, -3 network, -4 untrusted identity, -5 rate limit."""
    bench.signal.changed_keys.add(ANN)
    with pytest.raises(NotSent) as caught:
        await bench.channel.send(HOME, post("hi"))
    assert not isinstance(caught.value, TargetGone)
    assert "trust" in caught.value.hint
    bench.signal.changed_keys.clear()
    for chat in ("+15559990000", "no-such-group", "group:no-such-group"):
        with pytest.raises(TargetGone):
            await bench.channel.send(Address("signal", chat), post("hi"))
    errors: list[tuple[RpcError, type[Exception]]] = [
        (RATE_LIMIT, Throttled),
        (RpcError(-3, "Failed to send: [429] Rate Limited (RateLimitException)"), Throttled),
        (IO_FAILED, UnknownOutcome),
        (NETWORK, UnknownOutcome),
        (NO_ACCOUNT, NotSent),
        (RpcError(-32603, "Internal error"), UnknownOutcome),
    ]
    for failing, error in errors:
        bench.server.failing = failing
        with pytest.raises(error):
            await bench.channel.send(HOME, post("hi"))
    assert bench.signal.posts == []


async def test_groups_are_read_only_if_they_are_listed(tmp_path: Path) -> None:
    for number, (listed, count) in enumerate([("", 0), (GROUP, 1), ("other", 0), ("*", 1)]):
        env = {"SIGNAL_GROUP_ALLOWED_USERS": listed}
        async with (
            signal_bench(tmp_path / str(number), env=env) as one,
            listening(one.channel) as received,
        ):
            await one.connected()
            one.signal.say("hi all", group=GROUP)
            one.signal.emit(
                {
                    **one.signal.source(5),
                    "dataMessage": {
                        "timestamp": 5, "message": None,
                        "groupInfo": {"groupId": GROUP, "type": "UPDATE"},
                    },
                }
            )  # fmt: skip
            await one.acknowledged()
        assert len(received) == count
        if count:
            assert received[0].address == Address("signal", GROUP)
            assert received[0].about.chat_name == "Family"
            assert not received[0].about.mentions
            await one_answer(tmp_path / "answer", received[0].address)


async def one_answer(folder: Path, to: Address) -> None:
    async with signal_bench(folder) as one:
        await one.channel.send(to, post("hello"))
        assert [shown.chat for shown in one.signal.posts] == [GROUP]


async def test_mentions_have_names_and_a_reply_to_us_is_one(tmp_path: Path) -> None:
    """A mention is a placeholder in the text; places count UTF-16 units."""
    ours = {"name": ACCOUNT, "number": ACCOUNT, "uuid": None, "start": 0, "length": 1}
    bob = {"name": "Bob", "number": None, "uuid": "b", "start": 5, "length": 1}
    quote = {"id": 7, "authorNumber": ACCOUNT, "authorUuid": None, "text": "earlier"}
    other = {"id": 8, "authorNumber": "+15550009999", "authorUuid": None, "text": "not an order"}
    async with (
        signal_bench(tmp_path, env=EVERY_GROUP) as one,
        listening(one.channel) as received,
    ):
        await one.connected()
        one.signal.say("\ufffc hello", group=GROUP, mentions=[ours])
        one.signal.say("👩‍👧 \ufffc?", group=GROUP, mentions=[{**bob, "start": 6}])
        one.signal.say("more", group=GROUP, quote=quote)
        one.signal.say("this?", group=GROUP, quote=other)
        await one.acknowledged()
    assert [text_of(update) for update in received][:3] == ["hello", "👩‍👧 @Bob?", "more"]
    assert [update.about.mentions for update in received] == [True, False, True, False]
    assert received[2].reply_to == f"{ACCOUNT}:7"
    text, quoted = received[3].parts
    assert text == Text("this?")
    assert isinstance(quoted, Text)
    assert "not an order" in quoted.text


async def test_person_has_one_id_when_the_number_becomes_known(tmp_path: Path) -> None:
    signal = EmulatedSignal()
    keys: list[str] = []
    for known in (None, ANN):
        async with signal_bench(tmp_path, signal) as one, listening(one.channel) as received:
            await one.connected()
            source = {**signal.source(signal.now()), "sourceNumber": known}
            signal.emit({**source, "dataMessage": {"timestamp": signal.now(), "message": "hi"}})
            await one.acknowledged()
        keys.append(received[0].sender)
    assert keys == [ANN_UUID, ANN_UUID]
    assert received[0].about.user_alt == ANN, "lists of numbers still match"


async def test_note_to_self_is_a_message_and_other_sync_messages_are_not(
    bench: SignalBench,
) -> None:
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.signal.note_to_self("to somebody else", to=ANN)
        bench.signal.note_to_self("remember the milk")
        bench.signal.emit({**bench.signal.source(1), "typingMessage": {"action": "STARTED"}})
        bench.signal.emit({**bench.signal.source(2), "receiptMessage": {"isRead": True}})
        await bench.acknowledged()
    assert [text_of(update) for update in received] == ["remember the milk"]
    assert received[0].address == Address("signal", ACCOUNT)
    await bench.channel.send(received[0].address, post("noted"))
    assert bench.signal.posts[0].chat == ACCOUNT


async def test_second_edit_changes_the_same_message(bench: SignalBench) -> None:
    async with listening(bench.channel) as received:
        await bench.connected()
        first = bench.signal.say("one")
        second = bench.signal.edit(first, "two")
        bench.signal.edit(second, "three")
        await bench.acknowledged()
    assert {update.message for update in received} == {f"{ANN}:{first}"}
    assert [update.update for update in received[1:]] == [EditedMessage(), EditedMessage()]


async def test_stories_are_ignored_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    for value, count in (("true", 0), ("false", 1)):
        env = {"SIGNAL_IGNORE_STORIES": value}
        async with (
            signal_bench(tmp_path / value, env=env) as one,
            listening(one.channel) as received,
        ):
            await one.connected()
            story = {"allowsReplies": True, "textAttachment": {"text": "my day"}}
            one.signal.emit({**one.signal.source(one.signal.now()), "storyMessage": story})
            await one.acknowledged()
        assert len(received) == count


async def test_files_are_received_and_sent(bench: SignalBench) -> None:
    bench.signal.files |= {"a1": b"\x89PNG", "a2": b"voice"}
    files = [
        {"contentType": "image/png", "filename": None, "id": "a1", "size": 4},
        {"contentType": "audio/aac", "filename": None, "id": "a2", "size": 5},
        {"contentType": "image/png", "filename": "gone.png", "id": "a3", "size": 5},
    ]
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.signal.say("look", attachments=files)
        await bench.acknowledged()
    media = [part for part in received[0].parts if isinstance(part, Media)]
    assert [one.media_type for one in media] == ["image/png", "audio/aac"]
    assert "gone.png is not attached" in text_of(received[0])
    stored = await bench.blobs.put(b"%PDF", "application/pdf", "Übersicht; 1.pdf")
    attachment = Attachment(stored, 4, "the plan")
    await bench.channel.send(HOME, Outbound((attachment,)))
    assert bench.signal.posts[0].files == {"Übersicht; 1.pdf": b"%PDF"}
    assert bench.signal.posts[0].text == "the plan"
    with pytest.raises(NotSent):
        await bench.channel.send(HOME, Outbound((attachment,) * 33))


def test_styles_are_ranges_in_utf16_units() -> None:
    html = '👩 <b>bold &amp; <i>both</i></b> <a href="https://x.org">x</a>\n<pre><code>a()</code></pre>'
    text, styles = styled_text(html)
    assert text == "👩 bold & both x (https://x.org)\na()"
    assert set(styles) == {"3:11:BOLD", "10:4:ITALIC", "33:3:MONOSPACE"}
    assert styled_text("<blockquote>a\nb</blockquote>") == ("> a\n> b", [])
    assert styled_text("2 &lt; 3") == ("2 < 3", [])


async def test_styled_post_has_styles_and_a_plain_one_is_sent_as_it_is(bench: SignalBench) -> None:
    await bench.channel.send(HOME, Outbound((Text("<b>hi</b>"),), markup=Markup.TELEGRAM))
    await bench.channel.send(HOME, post("<b>hi</b>"))
    assert [(one.text, one.styles) for one in bench.signal.posts] == [
        ("hi", ["0:2:BOLD"]),
        ("<b>hi</b>", []),
    ]


async def test_reactions_can_be_turned_off(tmp_path: Path) -> None:
    async with signal_bench(tmp_path, env={"SIGNAL_REACTIONS": "false"}) as one:
        await one.channel.react(HOME, f"{ANN}:1", "👀")
        assert one.signal.reactions == {}


async def test_events_of_a_restart_are_fetched_once_and_in_order(tmp_path: Path) -> None:
    """A client that names the last event gets the later ones first."""
    signal = EmulatedSignal()
    async with signal_bench(tmp_path, signal) as one, listening(one.channel) as received:
        await one.connected()
        signal.say("before")
        await one.acknowledged()
    for number in range(5):
        signal.say(f"missed {number}")
    async with signal_bench(tmp_path, signal) as one, listening(one.channel) as later:
        await one.acknowledged()
    assert [text_of(update) for update in received] == ["before"]
    assert [text_of(update) for update in later] == [f"missed {number}" for number in range(5)]


async def test_first_event_is_not_lost_and_events_before_our_time_are_not_read(
    tmp_path: Path,
) -> None:
    """With an unknown id, all events that the daemon has are sent."""
    signal = EmulatedSignal()
    signal.emit({**signal.source(1), "dataMessage": {"timestamp": 1, "message": "long ago"}})
    async with signal_bench(tmp_path, signal) as one:

        async def fail(update: Inbound) -> None:
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup):  # noqa: PT012 - the message needs a listener
            async with anyio.create_task_group() as group:
                group.start_soon(one.channel.run, fail)
                await one.connected()
                signal.say("first")
                await anyio.sleep_forever()
        async with listening(one.channel) as received:
            await one.acknowledged()
    assert [text_of(update) for update in received] == ["first"]


async def test_daemon_that_numbers_no_events_is_warned_about(
    bench: SignalBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.server.numbered = False
    async with listening(bench.channel) as received:
        await bench.connected()
        bench.signal.say("hi")
        bench.signal.say("ho")
        while len(received) < 2:
            await anyio.lowlevel.checkpoint()
        await bench.channel.typing(HOME, True)
    assert [text_of(update) for update in received] == ["hi", "ho"]
    assert caplog.text.count("does not number its events") == 1


async def test_silent_stream_is_replaced(tmp_path: Path) -> None:
    clock = FakeClock()
    async with signal_bench(tmp_path, clock=clock) as one, listening(one.channel):
        await one.connected()
        while one.server.connections < 2:
            await clock.advance(15)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"SIGNAL_ACCOUNT": ""}, "needs SIGNAL_ACCOUNT"),
        ({"SIGNAL_ACCOUNT": "me"}, "SIGNAL_ACCOUNT must be"),
        ({"SIGNAL_HTTP_URL": "localhost:8080"}, "SIGNAL_HTTP_URL must be"),
    ],
)
async def test_wrong_settings_are_refused(
    tmp_path: Path, env: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with signal_bench(tmp_path, env=env):
            pass


async def test_setup_finds_the_account_or_reports_the_problem(bench: SignalBench) -> None:
    env = {"SIGNAL_HTTP_URL": bench.server.url}
    found = await check_account(ACCOUNT, {}, env)
    assert "0.13.99" in found.account
    assert NO_GROUPS in found.notes
    assert NO_GROUPS not in (await check_account(ACCOUNT, {}, {**env, **EVERY_GROUP})).notes
    with pytest.raises(ConfigError, match="does not have the account"):
        await check_account("+15550000099", {}, env)
    with pytest.raises(Offline):
        await check_account(ACCOUNT, {}, {"SIGNAL_HTTP_URL": "http://127.0.0.1:1"})
