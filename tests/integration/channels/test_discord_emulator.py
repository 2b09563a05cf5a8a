"""The emulator enforces Discord's documented rules; each test quotes its rule."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
import msgspec
import pytest
from msgspec import Struct

from hermes.testing.clock import FakeClock
from hermes.testing.discord.server import DiscordServer, serve_discord
from hermes.testing.discord.state import FORUM
from support.discord import ANN, TOKEN, emulator

pytestmark = pytest.mark.anyio

Json = dict[str, object]
DIRECT_MESSAGES, GUILD_MESSAGES, MESSAGE_CONTENT, GUILD_MEMBERS = 1 << 12, 1 << 9, 1 << 15, 1 << 1


class Answer(Struct):
    status: int
    body: object
    headers: dict[str, str]

    @property
    def table(self) -> Json:
        return msgspec.convert(self.body, Json)

    @property
    def code(self) -> int:
        return int(str(self.table.get("code", 0)))

    @property
    def wrong(self) -> set[str]:
        """The fields that were refused."""
        return set(msgspec.convert(self.table.get("errors", {}), Json))


class Api(Struct, frozen=True):
    """Calls the emulator as the documentation says."""

    server: DiscordServer
    session: aiohttp.ClientSession
    clock: FakeClock

    @property
    def direct(self) -> str:
        return self.server.discord.direct(ANN)

    async def __call__(
        self, method: str, path: str, body: object = None, token: str = f"Bot {TOKEN}"
    ) -> Answer:
        headers = {"Authorization": token}
        url = f"{self.server.api_url}{path}"
        async with self.session.request(method, url, json=body, headers=headers) as response:
            data = await response.read()
            return Answer(
                response.status, msgspec.json.decode(data or b"{}"), dict(response.headers)
            )

    async def send(self, **fields: object) -> Answer:
        return await self("POST", f"/channels/{self.direct}/messages", fields)

    async def upload(self, count: int, size: int = 1) -> Answer:
        form = aiohttp.FormData()
        form.add_field("payload_json", "{}", content_type="application/json")
        for number in range(count):
            form.add_field(f"files[{number}]", BytesIO(bytes(size)), filename=f"{number}.bin")
        url = f"{self.server.api_url}/channels/{self.direct}/messages"
        headers = {"Authorization": f"Bot {TOKEN}"}
        async with self.session.post(url, data=form, headers=headers) as response:
            return Answer(response.status, await response.json(), {})


class Socket(Struct, frozen=True):
    """A connection to the gateway without compression."""

    socket: aiohttp.ClientWebSocketResponse

    async def send(self, op: int, body: object = None) -> None:
        await self.socket.send_json({"op": op, "d": body})

    async def identify(self, intents: int = DIRECT_MESSAGES, token: str = TOKEN) -> None:
        await self.send(2, {"token": token, "intents": intents, "properties": {}})

    async def frame(self) -> Json:
        return msgspec.convert(await self.socket.receive_json(), Json)

    async def event(self, name: str) -> Json:
        while True:
            frame = await self.frame()
            if frame["t"] == name:
                return msgspec.convert(frame["d"], Json)

    async def close_code(self) -> int | None:
        while not self.socket.closed:
            await self.socket.receive()
        return self.socket.close_code


@pytest.fixture
async def api() -> AsyncGenerator[Api]:
    clock = FakeClock()
    async with serve_discord(emulator(clock=clock)) as server, aiohttp.ClientSession() as session:
        yield Api(server, session, clock)


@asynccontextmanager
async def gateway(api: Api) -> AsyncGenerator[Socket]:
    async with api.session.ws_connect(api.server.gateway.url) as socket:
        one = Socket(socket)
        hello = await one.frame()
        assert hello["op"] == 10
        assert "heartbeat_interval" in msgspec.convert(hello["d"], Json)
        yield one


class TestMessages:
    async def test_content_is_limited(self, api: Api) -> None:
        """ "content: Message contents (up to 2000 characters)" """
        assert (await api.send(content="x" * 2000)).status == 200
        refused = await api.send(content="x" * 2001)
        assert (refused.status, refused.code, refused.wrong) == (400, 50035, {"content"})

    async def test_message_must_not_be_empty(self, api: Api) -> None:
        """ "At least one of content, embeds, sticker_ids, components, files[n], or poll is
        required." """
        assert (await api.send(content="")).code == 50006

    async def test_nonce_is_limited(self, api: Api) -> None:
        """ "nonce: Can be used to verify a message was sent (up to 25 characters)." """
        assert (await api.send(content="x", nonce="n" * 25)).status == 200
        assert (await api.send(content="x", nonce="n" * 26)).wrong == {"nonce"}

    async def test_enforced_nonce_is_unique(self, api: Api) -> None:
        """ "If true and nonce is present, it will be checked for uniqueness in the past few
        minutes. If another message was created by the same author with the same nonce, that message
        will be returned and no new message will be created." """
        sent = [await api.send(content="x", nonce="1", enforce_nonce=True) for _ in range(2)]
        assert sent[0].table["id"] == sent[1].table["id"]
        free = await api.send(content="x", nonce="1")
        assert free.table["id"] != sent[0].table["id"]

    async def test_reply_to_a_deleted_message(self, api: Api) -> None:
        """ "fail_if_not_exists: when sending, whether to error if the referenced message doesn't
        exist instead of sending as a normal (non-reply) message, default true" """
        gone: Json = {"message_id": "5"}
        assert (await api.send(content="x", message_reference=gone)).code == 50035
        gone["fail_if_not_exists"] = False
        assert (await api.send(content="x", message_reference=gone)).status == 200

    async def test_files_are_limited(self, api: Api) -> None:
        """ "The file upload size limit applies to each file in a request. The default limit is
        10 MiB"; up to 10 files."""
        assert (await api.upload(10)).status == 200
        assert (await api.upload(11)).code == 30015
        assert (await api.upload(1, 10 * 1024 * 1024 + 1)).status == 413

    async def test_mentions_are_checked(self, api: Api) -> None:
        """ "Because parse: ["users"] and users: [123, 124] are both present, we would throw a
        validation error." """
        both: Json = {"parse": ["users"], "users": ["123", "124"]}
        assert (await api.send(content="x", allowed_mentions=both)).code == 50035

    async def test_voice_message_needs_metadata(self, api: Api) -> None:
        """ "Voice messages must have supporting metadata" (50162); "a single audio attachment"
        (50173)"""
        assert (await api.send(content="x", flags=8192)).code == 50173

    async def test_only_own_messages_are_edited(self, api: Api) -> None:
        """ "Cannot edit a message authored by another user" (50005)"""
        said = api.server.discord.say(api.direct, "hi", person=ANN)
        edited = await api("PATCH", f"/channels/{api.direct}/messages/{said}", {"content": "x"})
        assert (edited.status, edited.code) == (403, 50005)

    async def test_unknown_ids_have_codes(self, api: Api) -> None:
        """ "10003 Unknown channel", "10008 Unknown message" """
        assert (await api("GET", "/channels/5")).code == 10003
        assert (await api("GET", f"/channels/{api.direct}/messages/5")).code == 10008

    async def test_page_of_messages_is_limited(self, api: Api) -> None:
        """ "limit: Max number of messages to return (1-100)" """
        path = f"/channels/{api.direct}/messages?limit="
        assert (await api("GET", f"{path}100")).status == 200
        assert (await api("GET", f"{path}101")).wrong == {"limit"}


class TestComponents:
    async def send(self, api: Api, rows: object) -> Answer:
        return await api.send(content="x", components=rows)

    def buttons(self, count: int, **more: object) -> Json:
        one = [
            {"type": 2, "style": 2, "label": "A", "custom_id": f"c{n}", **more}
            for n in range(count)
        ]
        return {"type": 1, "components": one}

    def menu(self, count: int, label: str = "A") -> Json:
        options = [{"label": label, "value": f"v{n}"} for n in range(count)]
        menu: Json = {"type": 3, "custom_id": "m", "options": options}
        return {"type": 1, "components": [menu]}

    async def test_rows_are_limited(self, api: Api) -> None:
        """ "You can have up to 5 Action Rows per message" """
        rows = [self.buttons(1, custom_id=f"r{n}") for n in range(6)]
        assert (await self.send(api, rows[:5])).status == 200
        assert (await self.send(api, rows)).wrong == {"components"}

    async def test_row_holds_five_buttons_or_one_menu(self, api: Api) -> None:
        """ "An Action Row can contain only one type of component: up to 5 buttons, or a single
        select" """
        assert (await self.send(api, [self.buttons(5)])).status == 200
        assert (await self.send(api, [self.buttons(6)])).wrong == {"components"}

    async def test_custom_ids_are_limited_and_unique(self, api: Api) -> None:
        """ "custom_id: 1-100 characters"; "must be unique per component" """
        assert (await self.send(api, [self.buttons(1, custom_id="x" * 101)])).wrong == {"custom_id"}
        assert (await self.send(api, [self.buttons(2, custom_id="x")])).wrong == {"custom_id"}

    async def test_label_of_a_button_is_limited(self, api: Api) -> None:
        """ "label: Text that appears on the button; max 80 characters" """
        assert (await self.send(api, [self.buttons(1, label="x" * 80)])).status == 200
        assert (await self.send(api, [self.buttons(1, label="x" * 81)])).wrong == {"label"}

    async def test_options_of_a_menu_are_limited(self, api: Api) -> None:
        """ "options: Specified choices in a select menu; max 25"; "label: max 100 characters" """
        assert (await self.send(api, [self.menu(25)])).status == 200
        assert (await self.send(api, [self.menu(26)])).wrong == {"options"}
        assert (await self.send(api, [self.menu(1, "x" * 101)])).wrong == {"label"}


class TestPlaces:
    async def test_thread_of_a_message_has_its_id(self, api: Api) -> None:
        """ "The id of the created thread will be the same as the id of the source message, and as
        such a message can only have a single thread created from it." """
        discord = api.server.discord
        channel = discord.add_channel(discord.add_guild())
        said = discord.say(channel, "hi", person=ANN)
        path = f"/channels/{channel}/messages/{said}/threads"
        opened = await api("POST", path, {"name": "n"})
        assert opened.table["id"] == said
        assert (await api("POST", path, {"name": "n"})).code == 160004
        assert (await api("POST", path, {"name": "x" * 101})).wrong == {"name"}

    async def test_forum_takes_threads_only(self, api: Api) -> None:
        """ "You can not directly send messages in a forum channel": a new thread has an initial
        message, and "the message and thread have the same id"."""
        discord = api.server.discord
        forum = discord.add_channel(discord.add_guild(), kind=FORUM)
        path = f"/channels/{forum}"
        assert (await api("POST", f"{path}/messages", {"content": "x"})).status == 400
        body = {"name": "n", "message": {"content": "x"}}
        opened = await api("POST", f"{path}/threads", body)
        assert msgspec.convert(opened.table["message"], Json)["id"] == opened.table["id"]

    async def test_commands_are_checked(self, api: Api) -> None:
        """ "name: 1-32 character name"; "description: 1-100 character description"; "An app can
        have 100 global CHAT_INPUT commands" """
        path = f"/applications/{api.server.discord.bot.application}/commands"
        good = {"name": "help", "description": "x"}
        assert (await api("PUT", path, [good])).status == 200
        assert (await api("PUT", path, [{**good, "name": "Help"}])).wrong == {"name"}
        assert (await api("PUT", path, [{**good, "description": ""}])).wrong == {"description"}
        many = [{**good, "name": f"n{n}"} for n in range(101)]
        assert (await api("PUT", path, many)).code == 30032

    async def test_token_is_required(self, api: Api) -> None:
        """ "401 (UNAUTHORIZED): The Authorization header was missing or invalid." """
        assert (await api("GET", "/users/@me", token="Bot a.b.c")).status == 401
        assert (await api("GET", "/users/@me", token=TOKEN)).status == 401


class TestRateLimits:
    async def test_exceeded_limit_says_how_long_to_wait(self, api: Api) -> None:
        """ "In the case that a rate limit is exceeded, the API will return a HTTP 429 response code
        with a JSON body." "retry_after: The number of seconds to wait before submitting another
        request." """
        sent = [await api.send(content="x") for _ in range(6)]
        assert [one.headers["X-RateLimit-Remaining"] for one in sent[:5]] == list("43210")
        refused = sent[5]
        assert refused.status == 429
        assert refused.table["global"] is False
        assert float(refused.headers["Retry-After"]) == refused.table["retry_after"] == 5.0
        api.clock.skip(5.0)
        assert (await api.send(content="x")).status == 200

    async def test_limits_are_per_channel(self, api: Api) -> None:
        """ "rate limits take into account major parameters in the URL ... channel_id, guild_id, and
        webhook_id" """
        discord = api.server.discord
        other = discord.add_channel(discord.add_guild())
        for _ in range(5):
            await api.send(content="x")
        sent = await api("POST", f"/channels/{other}/messages", {"content": "x"})
        assert sent.status == 200

    async def test_all_requests_together_are_limited(self, api: Api) -> None:
        """ "All bots can make up to 50 requests per second to our API." """
        discord = api.server.discord
        channels = [discord.add_channel(discord.add_guild()) for _ in range(51)]
        answers = [await api("GET", f"/channels/{one}") for one in channels]
        assert [one.status for one in answers] == [200] * 50 + [429]
        assert answers[-1].table["global"] is True
        assert answers[-1].headers["X-RateLimit-Global"] == "true"


class TestInteractions:
    async def test_response_is_due_within_three_seconds(self, api: Api) -> None:
        """ "you must send an initial response within 3 seconds of receiving the event. If the 3
        second deadline is exceeded, the token will be invalidated." """
        discord = api.server.discord
        number = discord.command(api.direct, "help", ANN)
        path = f"/interactions/{number}/token-{number}/callback"
        api.clock.skip(3.1)
        assert (await api("POST", path, {"type": 5})).code == 10062

    async def test_only_one_response_is_taken(self, api: Api) -> None:
        """ "Interaction has already been acknowledged" (40060)"""
        number = api.server.discord.command(api.direct, "help", ANN)
        path = f"/interactions/{number}/token-{number}/callback"
        assert (await api("POST", path, {"type": 5}, token="")).status == 204
        assert (await api("POST", path, {"type": 5}, token="")).code == 40060


class TestGateway:
    async def test_heartbeat_is_acknowledged(self, api: Api) -> None:
        """ "Any time the client sends a heartbeat, the gateway will respond with Opcode 11
        Heartbeat ACK" """
        async with gateway(api) as socket:
            await socket.send(1)
            assert (await socket.frame())["op"] == 11

    async def test_events_are_numbered_and_replayed(self, api: Api) -> None:
        """ "the gateway will respond by replaying all missed events in order, finishing with a
        Resumed event to signal replay has finished" """
        discord = api.server.discord
        async with gateway(api) as socket:
            await socket.identify()
            ready = await socket.event("READY")
            discord.say(api.direct, "one", person=ANN)
            await socket.event("MESSAGE_CREATE")
            await socket.socket.close(code=4000)
        async with gateway(api) as socket:
            session = {"token": TOKEN, "session_id": ready["session_id"], "seq": 1}
            await socket.send(6, session)
            frames = [await socket.frame() for _ in range(2)]
        assert [(one["s"], one["t"]) for one in frames] == [(2, "MESSAGE_CREATE"), (3, "RESUMED")]

    async def test_clean_close_ends_the_session(self, api: Api) -> None:
        """ "When you close the connection to the gateway with the close code 1000 or 1001, your
        session will be invalidated and your bot will appear offline." """
        async with gateway(api) as socket:
            await socket.identify()
            ready = await socket.event("READY")
            await socket.socket.close(code=1000)
        async with gateway(api) as socket:
            session = {"token": TOKEN, "session_id": ready["session_id"], "seq": 1}
            await socket.send(6, session)
            assert (await socket.frame()) == {"op": 9, "d": False, "s": None, "t": None}

    @pytest.mark.parametrize(
        ("op", "body", "code"),
        [
            (3, {}, 4003),  # "We received a payload prior to identifying"
            (99, {}, 4001),  # "You sent an invalid Gateway opcode"
            (2, {"token": "wrong", "intents": 0}, 4004),  # "The account token ... is incorrect"
            (2, {"token": TOKEN, "intents": -1}, 4013),  # "an invalid intent"
            (2, {"token": TOKEN, "intents": GUILD_MEMBERS}, 4014),  # "a disallowed intent"
        ],
    )
    async def test_close_codes(self, api: Api, op: int, body: Json, code: int) -> None:
        async with gateway(api) as socket:
            await socket.send(op, body)
            assert await socket.close_code() == code

    async def test_second_identify_is_refused(self, api: Api) -> None:
        """ "4005 Already authenticated: You sent more than one identify payload." """
        async with gateway(api) as socket:
            await socket.identify()
            await socket.identify()
            assert await socket.close_code() == 4005

    async def test_sent_events_are_limited(self, api: Api) -> None:
        """ "Apps can send 120 gateway events per connection every 60 seconds" (4008)"""
        async with gateway(api) as socket:
            for _ in range(121):
                await socket.send(1)
            assert await socket.close_code() == 4008

    async def test_content_needs_the_intent(self, api: Api) -> None:
        """ "MESSAGE_CONTENT (1 << 15) is required to receive fields with content ... This doesn't
        apply for DMs, messages your bot sends, or messages in which your bot is mentioned." """
        discord = api.server.discord
        channel = discord.add_channel(discord.add_guild())
        named = f"<@{discord.bot.id}> hi"
        async with gateway(api) as socket:
            await socket.identify(DIRECT_MESSAGES | GUILD_MESSAGES)
            await socket.event("READY")
            for place, text in ((channel, "hi"), (channel, named), (api.direct, "hi")):
                discord.say(place, text, person=ANN)
            seen = [(await socket.event("MESSAGE_CREATE"))["content"] for _ in range(3)]
        assert seen == ["", named, "hi"]

    async def test_intent_must_be_turned_on(self, api: Api) -> None:
        """ "A disallowed intent is a privileged intent that has not been approved" """
        api.server.discord.bot.flags = 0
        async with gateway(api) as socket:
            await socket.identify(MESSAGE_CONTENT)
            assert await socket.close_code() == 4014

    async def test_events_without_their_intent_are_not_sent(self, api: Api) -> None:
        """ "If you do not specify a certain intent, you will not receive any of the gateway events
        that are batched into that group." """
        discord = api.server.discord
        channel = discord.add_channel(discord.add_guild())
        async with gateway(api) as socket:
            await socket.identify(DIRECT_MESSAGES)
            await socket.event("READY")
            discord.say(channel, "unheard", person=ANN)
            discord.say(api.direct, "heard", person=ANN)
            assert (await socket.event("MESSAGE_CREATE"))["content"] == "heard"

    async def test_session_starts_are_counted(self, api: Api) -> None:
        """ "remaining: Remaining number of session starts the current user is allowed" """
        async with gateway(api) as socket:
            await socket.identify()
            await socket.event("READY")
        info = (await api("GET", "/gateway/bot")).table
        assert msgspec.convert(info["session_start_limit"], Json)["remaining"] == 999
