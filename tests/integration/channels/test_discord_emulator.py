"""The emulator enforces Discord's documented rules of the HTTP API; each test quotes its rule."""

from collections.abc import AsyncGenerator

import msgspec
import pytest

from emulators.discord.limits import MAX_INVALID, InvalidRequests
from emulators.discord.state import FORUM
from hermes.testing.clock import FakeClock
from support.discord import ANN, TOKEN
from support.discord_api import Answer, Api, Json, open_api


@pytest.fixture
async def api() -> AsyncGenerator[Api]:
    async with open_api() as one:
        yield one


class TestMessages:
    async def test_content_is_limited(self, api: Api) -> None:
        """Discord, resources/message: "Message contents (up to 2000 characters)" """
        assert (await api.send(content="x" * 2000)).status == 200
        refused = await api.send(content="x" * 2001)
        assert (refused.status, refused.code, refused.wrong) == (400, 50035, {"content"})

    async def test_message_must_not_be_empty(self, api: Api) -> None:
        """Discord, resources/message: "At least one of content, embeds, sticker_ids, components,
        files[n], poll, or shared_client_theme is required." """
        assert (await api.send(content="")).code == 50006
        button = {"type": 2, "style": 2, "label": "A", "custom_id": "c"}
        row = {"type": 1, "components": [button]}
        assert (await api.send(components=[row])).status == 200

    async def test_nonce_is_limited(self, api: Api) -> None:
        """Discord, resources/message: "Can be used to verify a message was sent (up to 25
        characters)." """
        assert (await api.send(content="x", nonce="n" * 25)).status == 200
        assert (await api.send(content="x", nonce="n" * 26)).wrong == {"nonce"}

    async def test_enforced_nonce_is_unique(self, api: Api) -> None:
        """Discord, resources/message: "If another message was created by the same author with
        the same nonce, that message will be returned and no new message will be created." """
        sent = [await api.send(content="x", nonce="1", enforce_nonce=True) for _ in range(2)]
        assert sent[0].table["id"] == sent[1].table["id"]
        free = await api.send(content="x", nonce="1")
        assert free.table["id"] != sent[0].table["id"]

    async def test_reply_to_a_deleted_message(self, api: Api) -> None:
        """Discord, resources/message: "when sending, whether to error if the referenced message
        doesn't exist instead of sending as a normal (non-reply) message, default true" """
        gone: Json = {"message_id": "5"}
        assert (await api.send(content="x", message_reference=gone)).code == 50035
        gone["fail_if_not_exists"] = False
        assert (await api.send(content="x", message_reference=gone)).status == 200

    async def test_files_are_limited(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "Maximum number of attachments in a message
        reached (10)" """
        assert (await api.upload(10)).status == 200
        assert (await api.upload(11)).code == 30015

    async def test_size_of_files_is_limited(self, api: Api) -> None:
        """Discord, "API Reference": "The file upload size limit applies to each file in a
        request. The default limit is 20 MiB for all users". Discord, resources/message: "The
        maximum request size when sending a message is 25 MiB" """
        megabyte = 1024 * 1024
        assert (await api.upload(1, 20 * megabyte)).status == 200
        assert (await api.upload(1, 20 * megabyte + 1)).code == 40005
        assert (await api.upload(2, 13 * megabyte)).status == 413

    async def test_mentions_are_checked(self, api: Api) -> None:
        """Discord, resources/message: "Here's an example of an invalid configuration, because it
        includes both parse and users, despite those fields being mutually exclusive, causing a
        validation error." """
        both: Json = {"parse": ["users"], "users": ["123", "124"]}
        assert (await api.send(content="x", allowed_mentions=both)).code == 50035

    async def test_voice_message_needs_metadata(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "50161 Voice messages must have supporting
        metadata." """
        voice: Json = {"flags": 8192}
        assert (await api.send(**voice, content="x")).code == 50159
        assert (await api.send(**voice)).code == 50160
        assert (await api.upload(1, **voice)).code == 50161
        entry = {"id": 0, "filename": "0.bin", "duration_secs": 1.5, "waveform": "YA=="}
        sent = await api.upload(1, **voice, attachments=[entry])
        assert sent.status == 200
        path = f"/channels/{api.direct}/messages/{sent.table['id']}"
        assert (await api("PATCH", path, {"content": "x"})).code == 50162

    async def test_only_own_messages_are_edited(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "50005 Cannot edit a message authored by another
        user" """
        message = api.server.discord.say(api.direct, "hi", person=ANN)
        edited = await api("PATCH", f"/channels/{api.direct}/messages/{message}", {"content": "x"})
        assert (edited.status, edited.code) == (403, 50005)

    async def test_unknown_ids_have_codes(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "10003 Unknown channel", "10008 Unknown message" """
        assert (await api("GET", "/channels/5")).code == 10003
        assert (await api("GET", f"/channels/{api.direct}/messages/5")).code == 10008

    async def test_unknown_person_cannot_be_written_to(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "50033 Invalid Recipient(s)" """
        assert (await api("POST", "/users/@me/channels", {"recipient_id": "5"})).code == 50033

    async def test_page_of_messages_is_limited(self, api: Api) -> None:
        """Discord, resources/message: "Max number of messages to return (1-100)" """
        path = f"/channels/{api.direct}/messages?limit="
        assert (await api("GET", f"{path}100")).status == 200
        assert (await api("GET", f"{path}101")).wrong == {"limit"}

    async def test_page_of_messages_has_one_boundary(self, api: Api) -> None:
        """Discord, resources/message: "The before, after, and around parameters are mutually
        exclusive, only one may be passed at a time." """
        path = f"/channels/{api.direct}/messages"
        assert (await api("GET", f"{path}?before=5")).status == 200
        assert (await api("GET", f"{path}?before=5&after=1")).status == 400


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
        """Discord, "Component Reference": "Legacy messages allow up to 5 action rows as
        top-level components" """
        rows = [self.buttons(1, custom_id=f"r{n}") for n in range(6)]
        assert (await self.send(api, rows[:5])).status == 200
        assert (await self.send(api, rows)).wrong == {"components"}

    async def test_row_holds_five_buttons_or_one_menu(self, api: Api) -> None:
        """Discord, "Component Reference": "Up to 5 interactive button components or a single
        select component" """
        assert (await self.send(api, [self.buttons(5)])).status == 200
        assert (await self.send(api, [self.buttons(6)])).wrong == {"components"}

    async def test_custom_ids_are_limited_and_unique(self, api: Api) -> None:
        """Discord, "Component Reference": "Multiple components on the same message must not
        share the same custom_id. This field is a string of 1 to 100 characters" """
        assert (await self.send(api, [self.buttons(1, custom_id="x" * 101)])).wrong == {"custom_id"}
        assert (await self.send(api, [self.buttons(2, custom_id="x")])).wrong == {"custom_id"}

    async def test_label_of_a_button_is_limited(self, api: Api) -> None:
        """Discord, "Component Reference": "Text that appears on the button; max 80 characters" """
        assert (await self.send(api, [self.buttons(1, label="x" * 80)])).status == 200
        assert (await self.send(api, [self.buttons(1, label="x" * 81)])).wrong == {"label"}

    async def test_options_of_a_menu_are_limited(self, api: Api) -> None:
        """Discord, "Component Reference": "Specified choices in a select menu; max 25",
        "User-facing name of the option; max 100 characters" """
        assert (await self.send(api, [self.menu(25)])).status == 200
        assert (await self.send(api, [self.menu(26)])).wrong == {"options"}
        assert (await self.send(api, [self.menu(1, "x" * 101)])).wrong == {"label"}


class TestChannelsAndThreads:
    async def test_thread_of_a_message_has_its_id(self, api: Api) -> None:
        """Discord, resources/channel: "The id of the created thread will be the same as the
        id of the source message, and as such a message can only have a single thread created
        from it." """
        discord = api.server.discord
        channel = discord.add_channel(discord.add_guild())
        message = discord.say(channel, "hi", person=ANN)
        path = f"/channels/{channel}/messages/{message}/threads"
        opened = await api("POST", path, {"name": "n"})
        assert opened.table["id"] == message
        assert (await api("POST", path, {"name": "n"})).code == 160004
        assert (await api("POST", path, {"name": "x" * 101})).wrong == {"name"}

    async def test_forum_takes_threads_only(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "40058 Cannot send a message in a forum
        channel". Discord, resources/channel: "Creates a new thread in a forum or a media
        channel, and sends a message within the created thread." That both have one id is
        observed, not documented."""
        discord = api.server.discord
        forum = discord.add_channel(discord.add_guild(), kind=FORUM)
        path = f"/channels/{forum}"
        assert (await api("POST", f"{path}/messages", {"content": "x"})).status == 400
        body = {"name": "n", "message": {"content": "x"}}
        opened = await api("POST", f"{path}/threads", body)
        assert msgspec.convert(opened.table["message"], Json)["id"] == opened.table["id"]

    async def test_commands_are_checked(self, api: Api) -> None:
        """Discord, "Application Commands": "If there is a lowercase variant of any letters
        used, you must use those.", "Description for CHAT_INPUT commands, 1-100 characters.",
        "An app can have the following number of commands: 100 global CHAT_INPUT commands" """
        path = f"/applications/{api.server.discord.bot.application}/commands"
        good = {"name": "help", "description": "x"}
        assert (await api("PUT", path, [good])).status == 200
        assert (await api("PUT", path, [{**good, "name": "Help"}])).wrong == {"name"}
        assert (await api("PUT", path, [{**good, "description": ""}])).wrong == {"description"}
        many = [{**good, "name": f"n{n}"} for n in range(101)]
        assert (await api("PUT", path, many)).code == 30032

    async def test_token_is_required(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "401 (UNAUTHORIZED) The Authorization header was
        missing or invalid." """
        assert (await api("GET", "/users/@me", token="Bot a.b.c")).status == 401
        assert (await api("GET", "/users/@me", token=TOKEN)).status == 401

    async def test_user_agent_is_required(self, api: Api) -> None:
        """Discord, "API Reference": "Clients using the HTTP API must provide a valid User Agent
        which specifies information about the client library and version"; "Opcodes and Status
        Codes": "40333 Cloudflare is blocking your request." """
        answer = await api("GET", "/users/@me", **{"User-Agent": "python"})
        assert (answer.status, answer.code) == (403, 40333)

    async def test_type_of_the_content_is_required(self, api: Api) -> None:
        """Discord, "API Reference": "Failing to do so will result in a 50035 "Invalid form body"
        error." """
        path = f"/channels/{api.direct}/messages"
        answer = await api("POST", path, {"content": "x"}, **{"Content-Type": "text/plain"})
        assert (answer.status, answer.code) == (400, 50035)


class TestRateLimits:
    async def test_exceeded_limit_says_how_long_to_wait(self, api: Api) -> None:
        """Discord, "Rate Limits": "Your application should rely on the Retry-After header or
        retry_after field to determine when to retry the request." The header has whole seconds
        in the examples."""
        sent = [await api.send(content="x") for _ in range(6)]
        assert [one.headers["X-RateLimit-Remaining"] for one in sent[:5]] == list("43210")
        refused = sent[5]
        assert refused.status == 429
        assert refused.table["global"] is False
        assert (refused.headers["Retry-After"], refused.table["retry_after"]) == ("5", 5.0)
        assert refused.headers["X-RateLimit-Scope"] == "user"
        api.clock.skip(4.5)
        again = await api.send(content="x")
        assert (again.headers["Retry-After"], again.table["retry_after"]) == ("1", 0.5)
        api.clock.skip(0.5)
        assert (await api.send(content="x")).status == 200

    async def test_limits_are_per_channel(self, api: Api) -> None:
        """Discord, "Rate Limits": "if you exceeded a rate limit when calling one endpoint
        /channels/1234, you could still call another similar endpoint like /channels/9876
        without a problem" """
        discord = api.server.discord
        other = discord.add_channel(discord.add_guild())
        for _ in range(5):
            await api.send(content="x")
        sent = await api("POST", f"/channels/{other}/messages", {"content": "x"})
        assert sent.status == 200

    async def test_all_requests_together_are_limited(self, api: Api) -> None:
        """Discord, "Rate Limits": "All bots can make up to 50 requests per second to our API." """
        discord = api.server.discord
        channels = [discord.add_channel(discord.add_guild()) for _ in range(51)]
        answers = [await api("GET", f"/channels/{one}") for one in channels]
        assert [one.status for one in answers] == [200] * 50 + [429]
        assert answers[-1].table["global"] is True
        assert answers[-1].headers["X-RateLimit-Global"] == "true"

    async def test_responses_to_interactions_are_not_in_the_global_limit(self, api: Api) -> None:
        """Discord, "Rate Limits": "Interaction endpoints are not bound to the bot's Global Rate
        Limit." """
        discord = api.server.discord
        for one in [discord.add_channel(discord.add_guild()) for _ in range(50)]:
            await api("GET", f"/channels/{one}")
        assert (await api("GET", "/users/@me")).status == 429
        number = discord.command(api.direct, "help", ANN)
        path = f"/interactions/{number}/token-{number}/callback"
        assert (await api("POST", path, {"type": 5})).status == 204

    async def test_refused_requests_are_limited(self, api: Api) -> None:
        """Discord, "Rate Limits": "IP addresses that make too many invalid HTTP requests are
        automatically and temporarily restricted from accessing the Discord API. Currently, this
        limit is 10,000 per 10 minutes. An invalid request is one that results in 401, 403, or 429
        statuses." """
        api.server.invalid.count(403, MAX_INVALID - 1)
        assert (await api("GET", "/users/@me", token="Bot a.b.c")).status == 401
        blocked = await api("GET", "/users/@me")
        assert (blocked.status, blocked.headers["Retry-After"]) == (429, "600")
        api.clock.skip(600)
        assert (await api("GET", "/users/@me")).status == 200

    async def test_only_three_statuses_are_invalid_requests(self) -> None:
        """Discord, "Rate Limits": "An invalid request is one that results in 401, 403, or 429
        statuses." """
        counted = InvalidRequests(FakeClock())
        for status in (200, 400, 404, 500):
            counted.count(status, MAX_INVALID)
        assert counted.wait() == 0
        counted.count(429, MAX_INVALID)
        assert counted.wait() > 0


class TestInteractions:
    async def test_response_is_due_within_three_seconds(self, api: Api) -> None:
        """Discord, "Interactions": "If the 3 second deadline is exceeded, the token will be
        invalidated." """
        discord = api.server.discord
        number = discord.command(api.direct, "help", ANN)
        path = f"/interactions/{number}/token-{number}/callback"
        api.clock.skip(3.1)
        assert (await api("POST", path, {"type": 5})).code == 10062

    async def test_only_one_response_is_taken(self, api: Api) -> None:
        """Discord, "Opcodes and Status Codes": "40060 Interaction has already been
        acknowledged" """
        number = api.server.discord.command(api.direct, "help", ANN)
        path = f"/interactions/{number}/token-{number}/callback"
        assert (await api("POST", path, {"type": 5}, token="")).status == 204
        assert (await api("POST", path, {"type": 5}, token="")).code == 40060
