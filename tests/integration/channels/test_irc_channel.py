"""The IRC channel against the emulator: logins, identities, history, several lines, faults."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal

import anyio
import pytest
from msgspec import structs

from emulators.irc.server import IrcEmulator, serve_irc
from emulators.irc.state import CAPABILITIES, EmulatedIrc
from hermes.channels.irc.nickserv import LoginRefused
from hermes.channels.irc.setup import check_account
from hermes.ports.channel import Inbound, NotSent, Offline, Outbound, TargetGone, UnknownOutcome
from hermes.schema.errors import ConfigError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.channel import listening, text_of
from support.irc import NICK, PASSWORD, IrcBench, connected, ignore, irc_bench

ANN = Address("irc", "ann")
BASIC = {"message-tags": "", "server-time": "", "batch": "", "account-tag": ""}


def post(text: str, reply_to: str | None = None) -> Outbound:
    return Outbound((Text(text),), reply_to=reply_to, plain=text)


@pytest.fixture
async def server() -> AsyncGenerator[IrcEmulator]:
    async with serve_irc(EmulatedIrc({NICK: PASSWORD})) as one:
        yield one


@asynccontextmanager
async def network(**options: object) -> AsyncGenerator[IrcEmulator]:
    """A network with other capabilities or passwords."""
    async with serve_irc(EmulatedIrc({NICK: PASSWORD}, **options)) as one:  # pyright: ignore[reportArgumentType]
        yield one


async def ready(server: IrcEmulator) -> None:
    await server.until(lambda: any(one.synced for one in server.clients))


async def count(received: list[Inbound], number: int) -> list[Inbound]:
    with anyio.fail_after(10):
        while len(received) < number:  # noqa: ASYNC110 - another task appends to the list
            await anyio.sleep(0.005)
    return received


@asynccontextmanager
async def running(
    server: IrcEmulator, folder: Path, **extra: object
) -> AsyncGenerator[tuple[IrcBench, list[Inbound]]]:
    async with irc_bench(folder, server.port, extra) as one, listening(one.channel) as received:
        await ready(server)
        yield one, received


@pytest.mark.parametrize(
    "extra",
    [{"nickserv_password": PASSWORD}, {"sasl_mechanism": "external", "sasl_username": NICK}],
)
async def test_account_is_used_with_sasl(tmp_path: Path, extra: dict[str, object]) -> None:
    async with (
        network(certificate_account=NICK) as server,
        running(server, tmp_path, **extra),
    ):
        assert [one.account for one in server.clients] == [NICK]


async def test_nickserv_is_asked_without_sasl(tmp_path: Path) -> None:
    async with (
        network(capabilities=BASIC) as server,
        running(server, tmp_path, nickserv_password=PASSWORD, channel="#room"),
    ):
        assert [one.account for one in server.clients] == [NICK]
        commands = server.irc.commands
        identified = next(n for n, one in enumerate(commands) if "IDENTIFY" in one)
        assert identified < commands.index("JOIN #room")


@pytest.mark.parametrize("nickserv", ["operator", "impostor", ""])
async def test_password_is_sent_to_a_service_only(
    tmp_path: Path, nickserv: Literal["operator", "impostor", ""]
) -> None:
    """Anyone can take the name NickServ on a network without services."""
    async with network(capabilities=BASIC) as server:
        server.irc.nickserv = nickserv
        if nickserv == "impostor":
            async with irc_bench(tmp_path, server.port, {"nickserv_password": PASSWORD}) as one:
                with pytest.raises(LoginRefused, match="ordinary user"):
                    await one.channel.run(ignore)
        else:
            async with running(server, tmp_path, nickserv_password=PASSWORD):
                expected = NICK if nickserv else ""
                assert [one.account for one in server.clients] == [expected]
        sent = [one for one in server.irc.commands if one.startswith("PRIVMSG NickServ")]
        assert bool(sent) == (nickserv == "operator")
        assert server.irc.messages == []


@pytest.mark.parametrize("nickserv", ["command", "impostor"])
async def test_nickname_is_freed_through_the_command_of_the_server(
    tmp_path: Path, server: IrcEmulator, nickserv: Literal["command", "impostor"]
) -> None:
    server.irc.taken.add(NICK)
    server.irc.nickserv = nickserv
    async with running(server, tmp_path, nickserv_password=PASSWORD):
        shown = NICK if nickserv == "command" else f"{NICK}_"
        assert [one.nick for one in server.clients] == [shown]
    assert server.irc.messages == []


@pytest.mark.parametrize("capabilities", [CAPABILITIES, BASIC])
async def test_wrong_password_ends_the_run_and_can_be_replaced(
    tmp_path: Path, capabilities: dict[str, str]
) -> None:
    env = {"IRC_NICKSERV_PASSWORD": "wrong"}
    async with (
        network(capabilities=capabilities) as server,
        irc_bench(tmp_path, server.port, env=env) as one,
    ):
        with pytest.raises(LoginRefused) as caught:
            await one.channel.run(ignore)
        assert "wrong" not in str(caught.value)
        env["IRC_NICKSERV_PASSWORD"] = PASSWORD
        async with connected(one):
            await ready(server)
        assert NICK in [client.account for client in server.clients]


async def test_server_password_is_needed(tmp_path: Path) -> None:
    async with network(server_password="secret") as server:
        async with irc_bench(tmp_path, server.port) as one:
            with pytest.raises(LoginRefused):
                await one.channel.run(ignore)
        async with running(server, tmp_path, server_password="secret"):
            pass


async def test_taken_nickname_is_taken_back(tmp_path: Path, server: IrcEmulator) -> None:
    server.irc.taken.add(NICK)
    clock = FakeClock()
    async with irc_bench(tmp_path, server.port, clock=clock) as one, connected(one):
        await ready(server)
        assert [one.nick for one in server.clients] == [f"{NICK}_"]
        server.irc.taken.clear()
        await clock.advance(41)
        await server.until(lambda: [one.nick for one in server.clients] == [NICK])


async def test_channels_are_joined_with_their_keys(tmp_path: Path, server: IrcEmulator) -> None:
    server.irc.keys = {"#locked": "key", "#other": "key"}
    channels = "#locked key, open, #other wrong"
    async with running(server, tmp_path, channel=channels):
        assert server.clients[0].channels == {"#locked", "#open"}


async def test_missed_messages_are_fetched_once_and_in_order(
    tmp_path: Path, server: IrcEmulator
) -> None:
    old = server.say("ann", "#room", f"{NICK}: before the first start", account="ann")
    server.irc.messages[0] = structs.replace(old, at=old.at - timedelta(minutes=1))
    async with running(server, tmp_path, channel="#room") as (_, received):
        server.say("ann", "#room", f"{NICK}: one", account="ann")
        await count(received, 1)
    assert list(map(text_of, received)) == ["one"]
    server.say("ann", "#room", f"{NICK}: two", account="ann")
    server.say("ann", "#room", f"{NICK}: three", account="ann")
    server.say("bob", NICK, "a direct message", account="bob")
    async with running(server, tmp_path, channel="#room") as (_, received):
        await count(received, 3)
        server.say("ann", "#room", f"{NICK}: four", account="ann")
        await count(received, 4)
    in_room = [text_of(one) for one in received if one.about.chat_type == "group"]
    assert in_room == ["two", "three", "four"]
    assert [text_of(one) for one in received if one.sender == "bob"] == ["a direct message"]
    async with running(server, tmp_path, channel="#room") as (_, received):
        server.say("ann", NICK, "five", account="ann")
        await count(received, 1)
    assert list(map(text_of, received)) == ["five"]


async def test_long_outage_is_fetched_in_pages(tmp_path: Path, server: IrcEmulator) -> None:
    async with running(server, tmp_path) as (_, received):
        server.say("ann", NICK, "hello", account="ann")
        await count(received, 1)
    for number in range(250):
        server.say("ann", NICK, f"{number}", account="ann")
    async with running(server, tmp_path) as (_, received):
        await count(received, 250)
    assert list(map(text_of, received)) == [f"{number}" for number in range(250)]


async def test_undelivered_message_is_kept_without_history(tmp_path: Path) -> None:
    async def fail(update: Inbound) -> None:
        raise NotSent("The store is full.")

    async with (
        network(capabilities={}) as server,
        irc_bench(tmp_path, server.port) as one,
        anyio.create_task_group() as group,
    ):

        async def write() -> None:
            await ready(server)
            server.say("ann", NICK, "hello")

        group.start_soon(write)
        with pytest.raises(NotSent):
            await one.channel.run(fail)
        async with listening(one.channel) as received:
            await count(received, 1)
    assert list(map(text_of, received)) == ["hello"]


async def test_message_of_several_lines_is_one_message(tmp_path: Path, server: IrcEmulator) -> None:
    async with running(server, tmp_path) as (one, received):
        server.say("ann", NICK, "one\n\ntwo", account="ann")
        await count(received, 1)
        text = "first\n\n" + "word " * 150 + "end"
        receipt = await one.channel.send(ANN, post(text))
    assert text_of(received[0]) == "one\n\ntwo"
    assert [(sent.id, sent.text) for sent in server.irc.messages[1:]] == [(receipt.id, text)]


async def test_lines_are_sent_one_by_one_without_multiline(tmp_path: Path) -> None:
    async with (
        network(capabilities=BASIC) as server,
        running(server, tmp_path) as (one, _),
    ):
        await one.channel.send(ANN, post("first\n\nQUIT :no\rthird " + "word " * 150))
        lines = [sent.text for sent in server.irc.messages]
    assert lines[:2] == ["first", "QUIT :no"]
    assert len(lines) == 4
    assert all(
        len(f":{NICK}!hermes@emulated.example PRIVMSG ann :{one}\r\n") <= 512 for one in lines
    )


@pytest.mark.parametrize(
    ("account", "extra", "sender"),
    [
        ("ann", {}, "ann"),
        ("", {}, "ann!ann@people.example"),
        ("", {"trust_nicknames": True}, "ann"),
    ],
)
async def test_person_is_identified_by_the_protected_account(
    tmp_path: Path,
    server: IrcEmulator,
    account: str,
    extra: dict[str, object],
    sender: str,
) -> None:
    async with running(server, tmp_path, **extra) as (one, received):
        server.say("Ann", NICK, "hello", account=account.title())
        await count(received, 1)
        (update,) = received
        assert (update.sender, update.address) == (sender, Address("irc", sender))
        await one.channel.send(update.address, post("hi"))
        assert server.irc.messages[-1].target.lower() == "ann"


async def test_answer_to_a_person_is_not_written_in_a_channel_of_that_name(
    tmp_path: Path, server: IrcEmulator
) -> None:
    async with running(server, tmp_path, channel=["#ann"]) as (one, received):
        server.say("ann-away", NICK, "a secret", account="ann")
        server.say("bob", "#ann", f"{NICK}: hello", account="bob")
        await count(received, 2)
        secret, answer = received
        assert secret.sender == "ann"
        await one.channel.send(secret.address, post("between us"))
        assert server.irc.messages[-1].target == "ann-away"
        await one.channel.send(answer.address, post("hi"))
        assert server.irc.messages[-1].target == "#ann"
        await one.channel.send(Address("irc", "ann"), post("good morning"))
        assert server.irc.messages[-1].target == "#ann", "as `-t irc:ann` names the channel"


async def test_answer_follows_a_new_nickname(tmp_path: Path, server: IrcEmulator) -> None:
    async with running(server, tmp_path) as (one, received):
        server.say("ann", NICK, "hello", account="ann")
        server.rename("ann", "ann-away", "ann")
        server.say("ann-away", "#else", "not for us", account="ann")
        server.say("bob", NICK, "hello", account="bob")
        await count(received, 2)
        await one.channel.send(received[0].address, post("hi"))
    assert server.irc.messages[-1].target == "ann-away"


MENTIONS = [
    (f"{NICK}: hi", True, "hi"),
    (f"{NICK.upper()}, hi", True, "hi"),
    (f"{NICK} hi", True, "hi"),
    (f"@{NICK} hi", True, "hi"),
    (f"{NICK}", True, "(no text)"),
    (f"ask {NICK}", False, f"ask {NICK}"),
    (f"{NICK}-bot: hi", False, f"{NICK}-bot: hi"),
    (f"\x02{NICK}\x02: \x0304,01red\x03 \x1dtext", True, "red text"),
    ("\x01ACTION waves\x01", False, "* ann waves"),
]
"""What is written, whether the agent is mentioned, and what it reads."""


async def test_mention_is_at_the_beginning(tmp_path: Path, server: IrcEmulator) -> None:
    async with running(server, tmp_path, channel="#Room") as (_, received):
        for written, _, _ in MENTIONS:
            server.say("ann", "#Room", written, account="ann")
        await count(received, len(MENTIONS))
    read = [(one.about.mentions, text_of(one)) for one in received]
    assert read == [(mentioned, text) for _, mentioned, text in MENTIONS]
    assert {one.address for one in received} == {Address("irc", "#room")}
    assert {one.about.chat_type for one in received} == {"group"}


async def test_reply_to_the_agent_is_a_mention(tmp_path: Path, server: IrcEmulator) -> None:
    async with running(server, tmp_path, channel="#room") as (one, received):
        sent = await one.channel.send(Address("irc", "#room"), post("hi"))
        server.say("ann", "#room", "why?", account="ann", **{"+draft/reply": sent.id})
        await count(received, 1)
    assert received[0].about.mentions


async def test_programs_are_not_answered(tmp_path: Path, server: IrcEmulator) -> None:
    async with running(server, tmp_path) as (_, received):
        server.send_line("ann!a@people.example", "NOTICE", NICK, "automatic")
        server.say("ann", NICK, "\x01VERSION\x01", account="ann")
        server.send_line("irc.emulator", "PRIVMSG", NICK, "from the server")
        server.say("bot", NICK, "beep", account="bot", bot="")
        server.say("ann", NICK, "hello", account="ann")
        await count(received, 2)
    assert [(text_of(one), one.about.bot) for one in received] == [("beep", True), ("hello", False)]


@pytest.mark.parametrize(("numeric", "error"), [("401", TargetGone), ("404", NotSent)])
async def test_refused_post_is_certainly_not_sent(
    tmp_path: Path, server: IrcEmulator, numeric: str, error: type[Exception]
) -> None:
    server.irc.refusal = numeric
    async with running(server, tmp_path) as (one, _):
        with pytest.raises(error):
            await one.channel.send(ANN, post("hi"))


async def test_lost_confirmation_leaves_the_outcome_open(
    tmp_path: Path, server: IrcEmulator
) -> None:
    async with running(server, tmp_path) as (one, _), anyio.create_task_group() as group:

        async def cut() -> None:
            await server.until(lambda: server.irc.messages)
            server.cut()

        server.irc.deaf = True
        group.start_soon(cut)
        with pytest.raises(UnknownOutcome):
            await one.channel.send(ANN, post("hi"))


async def test_invalid_target_is_refused(tmp_path: Path, server: IrcEmulator) -> None:
    async with running(server, tmp_path) as (one, _):
        for chat in ("two words", "#a,#b", ":x", "a\nb", ""):
            with pytest.raises(NotSent):
                await one.channel.send(Address("irc", chat), post("hi"))
    assert not server.irc.messages


async def test_long_answer_is_sent_within_the_flood_limit(tmp_path: Path) -> None:
    clock = FakeClock()
    extra = {"flood_burst": 4, "flood_interval": 2}
    async with (
        network(capabilities=BASIC) as server,
        irc_bench(tmp_path, server.port, extra, clock=clock) as one,
        connected(one),
        anyio.create_task_group() as group,
    ):
        await ready(server)
        group.start_soon(one.channel.send, ANN, post("\n".join("abcdefgh")))
        await server.until(lambda: len(server.irc.messages) == 4)
        await clock.advance(1.9)
        assert len(server.irc.messages) == 4
        for number in range(5, 9):
            await clock.advance(2)
            await server.until(lambda expected=number: len(server.irc.messages) == expected)


async def test_deaf_connection_is_replaced(tmp_path: Path, server: IrcEmulator) -> None:
    clock = FakeClock()
    async with irc_bench(tmp_path, server.port, clock=clock) as one, connected(one):
        await ready(server)
        server.irc.deaf = True
        await clock.advance(41)
        server.irc.deaf = False
        await clock.advance(1)
        await server.until(lambda: server.irc.connections == 2)


async def test_unreachable_server_ends_the_run(tmp_path: Path) -> None:
    async with irc_bench(tmp_path, 1, clock=FakeClock(auto=True)) as one:
        with pytest.raises(Offline, match="cannot be reached"):
            await one.channel.run(ignore)


async def test_password_is_not_sent_without_encryption(tmp_path: Path) -> None:
    extra = {"server": "irc.example.org", "nickserv_password": PASSWORD}
    with pytest.raises(ConfigError, match="without encryption"):
        async with irc_bench(tmp_path, 6667, extra):
            pass


async def test_setup_shows_the_account_and_lists_missing_settings(server: IrcEmulator) -> None:
    extra = {"port": server.port, "use_tls": False}
    env = {"IRC_SERVER": "127.0.0.1", "IRC_NICKNAME": NICK, "IRC_CHANNEL": "#room"}
    found = await check_account(PASSWORD, extra, env)
    assert (found.account, found.notes) == (f"{NICK} on Emulated", ())
    server.irc.capabilities = {}
    server.irc.taken.add(NICK)
    found = await check_account("", extra, env)
    assert len(found.notes) == 4
    with pytest.raises(LoginRefused):
        await check_account("wrong", extra, env)
