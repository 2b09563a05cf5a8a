"""The emulated gateway enforces Discord's documented rules; each test quotes its rule."""

from collections.abc import AsyncGenerator

import msgspec
import pytest

from support.discord import ANN, TOKEN
from support.discord_api import (
    DIRECT_MESSAGES,
    GUILD_MEMBERS,
    GUILD_MESSAGES,
    MESSAGE_CONTENT,
    Api,
    Json,
    open_api,
    open_gateway,
)


@pytest.fixture
async def api() -> AsyncGenerator[Api]:
    async with open_api() as one:
        yield one


class TestGateway:
    async def test_heartbeat_is_acknowledged(self, api: Api) -> None:
        """Discord, "Gateway": "When you send a Heartbeat event, Discord will respond with a
        Heartbeat ACK (opcode 11) event, which is an acknowledgement that the heartbeat was
        received" """
        async with open_gateway(api) as socket:
            await socket.send(1)
            assert (await socket.frame())["op"] == 11

    async def test_events_are_numbered_and_replayed(self, api: Api) -> None:
        """Discord, "Gateway": "If successful, the Gateway will send the missed events in order,
        finishing with a Resumed event to signal event replay has finished and that all
        subsequent events will be new." """
        discord = api.server.discord
        async with open_gateway(api) as socket:
            await socket.identify()
            ready = await socket.event("READY")
            discord.say(api.direct, "one", person=ANN)
            await socket.event("MESSAGE_CREATE")
            await socket.socket.close(code=4000)
        async with open_gateway(api) as socket:
            session = {"token": TOKEN, "session_id": ready["session_id"], "seq": 1}
            await socket.send(6, session)
            frames = [await socket.frame() for _ in range(2)]
        assert [(one["s"], one["t"]) for one in frames] == [(2, "MESSAGE_CREATE"), (3, "RESUMED")]

    async def test_clean_close_ends_the_session(self, api: Api) -> None:
        """Discord, "Gateway": "When you close the connection to the gateway with close code
        1000 or 1001, your session will be invalidated and your bot will appear offline." """
        async with open_gateway(api) as socket:
            await socket.identify()
            ready = await socket.event("READY")
            await socket.socket.close(code=1000)
        async with open_gateway(api) as socket:
            session = {"token": TOKEN, "session_id": ready["session_id"], "seq": 1}
            await socket.send(6, session)
            assert (await socket.frame()) == {"op": 9, "d": False, "s": None, "t": None}

    @pytest.mark.parametrize(
        ("op", "body", "code"),
        [
            # "You sent us a payload prior to identifying, or this session has been invalidated."
            (3, {}, 4003),
            # "You sent an invalid Gateway opcode or an invalid payload for an opcode."
            (99, {}, 4001),
            # "The account token sent with your identify payload is incorrect."
            (2, {"token": "wrong", "intents": 0}, 4004),
            # "You sent an invalid intent for a Gateway Intent."
            (2, {"token": TOKEN, "intents": -1}, 4013),
            # "You sent a disallowed intent for a Gateway Intent."
            (2, {"token": TOKEN, "intents": GUILD_MEMBERS}, 4014),
        ],
    )
    async def test_close_codes(self, api: Api, op: int, body: Json, code: int) -> None:
        """Discord, "Opcodes and Status Codes": the explanations of the close codes"""
        async with open_gateway(api) as socket:
            await socket.send(op, body)
            assert await socket.close_code() == code

    async def test_second_identify_is_refused(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "4005 Already authenticated: You sent more than
        one identify payload." """
        async with open_gateway(api) as socket:
            await socket.identify()
            await socket.identify()
            assert await socket.close_code() == 4005

    async def test_version_is_checked(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "4012 Invalid API version: You sent an invalid
        version for the gateway." """
        async with api.session.ws_connect(f"{api.server.gateway.url}?v=99") as socket:
            await socket.receive()
            assert socket.close_code == 4012

    async def test_wrong_sequence_is_refused(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "4007 Invalid seq: The sequence sent when resuming
        the session was invalid. Reconnect and start a new session." """
        async with open_gateway(api) as socket:
            await socket.identify()
            ready = await socket.event("READY")
            await socket.socket.close(code=4000)
        async with open_gateway(api) as socket:
            session = {"token": TOKEN, "session_id": ready["session_id"], "seq": 99}
            await socket.send(6, session)
            assert await socket.close_code() == 4007

    async def test_silent_connection_is_closed_and_can_be_resumed(self, api: Api) -> None:
        """Discord, "Gateway": "If your app fails to send a heartbeat event in time, your connection
        will be closed and you will be forced to Resume." The close code is not documented."""
        async with open_gateway(api) as socket:
            await socket.identify()
            ready = await socket.event("READY")
            api.clock.skip(40)
            await socket.send(1, 1)
            await socket.frame()
            await api.clock.advance(80)
            await socket.send(1, 1)
            assert (await socket.frame())["op"] == 11, "two intervals are tolerated"
            await api.clock.advance(100)
            assert await socket.close_code() == 4000
        async with open_gateway(api) as socket:
            session = {"token": TOKEN, "session_id": ready["session_id"], "seq": 1}
            await socket.send(6, session)
            assert (await socket.frame())["t"] == "RESUMED"

    async def test_sessions_start_five_seconds_apart(self, api: Api) -> None:
        """Discord, "Gateway": "Number of identify requests allowed per 5 seconds", "If you hit this
        limit, the Gateway will respond with an Invalid Session (opcode 9)." """
        async with open_gateway(api) as socket:
            await socket.identify()
            await socket.event("READY")
        async with open_gateway(api) as socket:
            await socket.identify()
            assert (await socket.frame()) == {"op": 9, "d": False, "s": None, "t": None}
        api.clock.skip(5)
        async with open_gateway(api) as socket:
            await socket.identify()
            await socket.event("READY")

    async def test_token_is_reset_after_a_thousand_sessions(self, api: Api) -> None:
        """Discord, "Gateway": "Clients are limited to 1000 IDENTIFY calls to the websocket in a
        24-hour period.", "Upon hitting this limit, all active sessions for the app will be
        terminated, the bot token will be reset" """
        api.server.discord.bot.starts_left = 0
        async with open_gateway(api) as socket:
            await socket.identify()
            assert await socket.close_code() == 4004
        assert not api.server.gateway.sessions
        assert (await api("GET", "/users/@me")).status == 401

    async def test_resumed_session_does_not_emit_a_session_start(self, api: Api) -> None:
        """Discord, "Gateway": "This limit is global and across all shards, but does not include
        RESUME calls." """
        async with open_gateway(api) as socket:
            await socket.identify()
            ready = await socket.event("READY")
            await socket.socket.close(code=4000)
        async with open_gateway(api) as socket:
            session = {"token": TOKEN, "session_id": ready["session_id"], "seq": 1}
            await socket.send(6, session)
            await socket.event("RESUMED")
        assert api.server.discord.bot.starts_left == 999

    async def test_sent_events_are_limited(self, api: Api) -> None:
        """Discord, "Gateway": "Apps can send 120 gateway events per connection every 60
        seconds", "Apps that surpass the limit are immediately disconnected from the Gateway." """
        async with open_gateway(api) as socket:
            for _ in range(121):
                await socket.send(1)
            assert await socket.close_code() == 4008

    async def test_sent_payloads_are_limited(self, api: Api) -> None:
        """Discord, "Gateway": "If an event payload does exceed 4096 bytes, the connection will
        be closed with a 4002 close event code." """
        async with open_gateway(api) as socket:
            await socket.send(1, "x" * 4096)
            assert await socket.close_code() == 4002

    async def test_content_needs_the_intent(self, api: Api) -> None:
        """Discord, "Gateway": "Apps without the intent will receive empty values in fields that
        contain user-inputted content with a few exceptions: Content in messages that an app
        sends, Content in DMs with the app, Content in which the app is mentioned" """
        discord = api.server.discord
        channel = discord.add_channel(discord.add_guild())
        named = f"<@{discord.bot.id}> hi"
        async with open_gateway(api) as socket:
            await socket.identify(DIRECT_MESSAGES | GUILD_MESSAGES)
            await socket.event("READY")
            for place, text in ((channel, "hi"), (channel, named), (api.direct, "hi")):
                discord.say(place, text, person=ANN)
            seen = [(await socket.event("MESSAGE_CREATE"))["content"] for _ in range(3)]
        assert seen == ["", named, "hi"]

    async def test_intent_must_be_turned_on(self, api: Api) -> None:
        """Discord, "Gateway": "Before you can specify any of these privileged intents in your
        IDENTIFY payload, you must enable the specific privileged intents you need in the
        Developer Portal." """
        api.server.discord.bot.flags = 0
        async with open_gateway(api) as socket:
            await socket.identify(MESSAGE_CONTENT)
            assert await socket.close_code() == 4014

    async def test_events_without_their_intent_are_not_sent(self, api: Api) -> None:
        """Discord, "Gateway": "If you do not specify an intent when identifying, you will not
        receive any of the Gateway events associated with that intent." """
        discord = api.server.discord
        channel = discord.add_channel(discord.add_guild())
        async with open_gateway(api) as socket:
            await socket.identify(DIRECT_MESSAGES)
            await socket.event("READY")
            discord.say(channel, "unheard", person=ANN)
            discord.say(api.direct, "heard", person=ANN)
            assert (await socket.event("MESSAGE_CREATE"))["content"] == "heard"

    async def test_session_starts_are_counted(self, api: Api) -> None:
        """Discord, "Gateway": "Remaining number of session starts the current user is allowed" """
        async with open_gateway(api) as socket:
            await socket.identify()
            await socket.event("READY")
        info = (await api("GET", "/gateway/bot")).table
        assert msgspec.convert(info["session_start_limit"], Json)["remaining"] == 999
