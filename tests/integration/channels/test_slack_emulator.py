"""The emulator enforces Slack's documented rules; each test says the rule in a few words."""

from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from msgspec import Struct

from hermes.testing.clock import FakeClock
from hermes.testing.slack.limits import RateLimits
from hermes.testing.slack.server import SlackServer, serve_slack
from hermes.testing.slack.socket_mode import MAX_CONNECTIONS
from support.slack import ANN, APP_TOKEN, TOKEN, emulator

pytestmark = pytest.mark.anyio


class Client(Struct, frozen=True):
    """Calls methods as forms, and opens sockets."""

    server: SlackServer
    session: aiohttp.ClientSession

    async def call(self, method: str, token: str = TOKEN, **fields: object) -> Any:
        data = {
            name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for name, value in fields.items()
        }
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{self.server.api_url}/{method}"
        async with self.session.post(url, data=data, headers=headers) as response:
            return {"status": response.status, **response.headers, **await response.json()}

    async def post(self, **fields: object) -> Any:
        direct = self.server.slack.direct(ANN)
        return await self.call("chat.postMessage", **{"channel": direct, **fields})

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        opened = await self.call("apps.connections.open", APP_TOKEN)
        return await self.session.ws_connect(opened["url"])


@pytest.fixture
async def client() -> AsyncGenerator[Client]:
    async with serve_slack(emulator()) as server, aiohttp.ClientSession() as session:
        yield Client(server, session)


def section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def button(**more: object) -> dict[str, object]:
    text = {"type": "plain_text", "text": "Yes"}
    return {"type": "button", "text": text, "value": "v", "action_id": "a", **more}


class TestTokens:
    """Tokens have types: xapp- opens connections, xoxb- does everything else."""

    async def test_token_is_required(self, client: Client) -> None:
        assert (await client.call("auth.test", ""))["error"] == "not_authed"

    async def test_unknown_token_is_invalid(self, client: Client) -> None:
        assert (await client.call("auth.test", "xoxb-wrong"))["error"] == "invalid_auth"

    async def test_each_method_takes_one_type_of_token(self, client: Client) -> None:
        for method, token in (("apps.connections.open", TOKEN), ("auth.test", APP_TOKEN)):
            assert (await client.call(method, token))["error"] == "not_allowed_token_type"

    async def test_answers_list_the_scopes_and_name_the_missing_one(self, client: Client) -> None:
        workspace = client.server.slack.workspace
        workspace.scopes = frozenset({"commands"})
        assert (await client.call("auth.test"))["x-oauth-scopes"] == "commands"
        refused = await client.post(text="x")
        assert (refused["error"], refused["needed"]) == ("missing_scope", "chat:write")

    async def test_unknown_method_is_named(self, client: Client) -> None:
        assert (await client.call("chat.shout"))["error"] == "unknown_method"


class TestMessages:
    async def test_message_needs_text_or_blocks(self, client: Client) -> None:
        assert (await client.post(text=""))["error"] == "no_text"

    async def test_text_is_truncated_after_40000_characters(self, client: Client) -> None:
        sent = await client.post(text="x" * 40_001)
        assert len(sent["message"]["text"]) == 40_000
        assert sent["response_metadata"]["messages"]

    async def test_edited_text_has_at_most_4000_characters(self, client: Client) -> None:
        sent = await client.post(text="x")
        fields = {"channel": sent["channel"], "ts": sent["ts"]}
        refused = await client.call("chat.update", text="x" * 4001, **fields)
        assert refused["error"] == "msg_too_long"
        assert (await client.call("chat.update", text="x" * 4000, **fields))["ok"]

    async def test_edit_without_blocks_keeps_the_former_ones(self, client: Client) -> None:
        sent = await client.post(text="x", blocks=[section("x")])
        fields = {"channel": sent["channel"], "ts": sent["ts"]}
        post = client.server.slack.messages[sent["channel"], sent["ts"]]
        await client.call("chat.update", text="y", **fields)
        assert post.object["blocks"]
        await client.call("chat.update", text="y", blocks=[], **fields)
        assert post.object["blocks"] == []

    async def test_only_own_messages_can_be_edited(self, client: Client) -> None:
        slack = client.server.slack
        direct = slack.direct(ANN)
        ts = slack.say(direct, "mine", person=ANN)
        refused = await client.call("chat.update", channel=direct, ts=ts, text="x")
        assert refused["error"] == "cant_update_message"
        unknown = await client.call("chat.update", channel=direct, ts="1.2", text="x")
        assert unknown["error"] == "message_not_found"

    async def test_channel_must_exist_have_the_bot_and_not_be_archived(
        self, client: Client
    ) -> None:
        slack = client.server.slack
        foreign, old = slack.add_channel("foreign", member=False), slack.add_channel("old")
        slack.channels[old].archived = True
        wrong = {"C404": "channel_not_found", foreign: "not_in_channel", old: "is_archived"}
        for channel, error in wrong.items():
            assert (await client.post(channel=channel, text="x"))["error"] == error

    async def test_thread_must_exist(self, client: Client) -> None:
        assert (await client.post(text="x", thread_ts="1.2"))["error"] == "invalid_thread_ts"

    async def test_reading_methods_take_no_json(self, client: Client) -> None:
        url = f"{client.server.api_url}/conversations.info"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        body = {"channel": client.server.slack.direct(ANN)}
        async with client.session.post(url, json=body, headers=headers) as response:
            assert (await response.json())["error"] == "channel_not_found"

    async def test_history_has_no_replies_but_their_time(self, client: Client) -> None:
        slack = client.server.slack
        channel = slack.add_channel()
        root = slack.say(channel, "root", person=ANN)
        reply = slack.say(channel, "reply", person=ANN, thread=root)
        history = await client.call("conversations.history", channel=channel)
        assert [one["text"] for one in history["messages"]] == ["root"]
        assert history["messages"][0]["latest_reply"] == reply
        fields = {"channel": channel, "ts": root, "oldest": root}
        replies = await client.call("conversations.replies", **fields)
        assert [one["text"] for one in replies["messages"]] == ["root", "reply"]

    async def test_reaction_is_set_once_and_removed_once(self, client: Client) -> None:
        sent = await client.post(text="x")
        fields = {"channel": sent["channel"], "timestamp": sent["ts"], "name": "eyes"}
        answers = [
            await client.call(method, **fields)
            for method in ("reactions.add", "reactions.add", "reactions.remove", "reactions.remove")
        ]
        errors = [one.get("error") for one in answers]
        assert errors == [None, "already_reacted", None, "no_reaction"]


class TestBlocks:
    """Blocks have limits of counts and lengths; a wrong one refuses the whole message."""

    @pytest.mark.parametrize(
        "blocks",
        [
            [section("x")] * 51,
            [section("x" * 3001)],
            [section("")],
            [{"type": "section"}],
            [{"type": "carousel"}],
            [{"type": "actions", "elements": []}],
            [{"type": "actions", "elements": [button(action_id=str(n)) for n in range(26)]}],
            [{"type": "actions", "elements": [button(), button()]}],
            [{"type": "actions", "elements": [button(value="x" * 2001)]}],
            [{"type": "actions", "elements": [button(style="green")]}],
            [{"type": "actions", "elements": [button(action_id="x" * 256)]}],
            [
                {
                    "type": "actions",
                    "elements": [button(text={"type": "plain_text", "text": "x" * 76})],
                }
            ],
            [{"type": "actions", "elements": [button(text={"type": "mrkdwn", "text": "x"})]}],
            [{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}],
            [{"type": "markdown", "text": "x" * 12_001}],
        ],
        ids=lambda blocks: str(blocks)[:40],
    )
    async def test_wrong_blocks_are_refused(
        self, client: Client, blocks: list[dict[str, object]]
    ) -> None:
        refused = await client.post(text="x", blocks=blocks)
        assert refused["error"] == "invalid_blocks"
        assert refused["response_metadata"]["messages"]

    async def test_blocks_must_be_a_list(self, client: Client) -> None:
        assert (await client.post(text="x", blocks="{}"))["error"] == "invalid_blocks_format"


class TestFiles:
    """A file is uploaded to an address that is asked for, then completed in a channel."""

    async def test_length_must_match_and_upload_precede_completion(self, client: Client) -> None:
        wanted = {"filename": "a.txt", "length": "4"}
        target = await client.call("files.getUploadURLExternal", **wanted)
        fields = {
            "files": [{"id": target["file_id"]}],
            "channel_id": client.server.slack.direct(ANN),
        }
        early = await client.call("files.completeUploadExternal", **fields)
        assert early["error"] == "file_not_found"
        async with client.session.post(target["upload_url"], data=b"12345") as response:
            assert response.status == 400
        async with client.session.post(target["upload_url"], data=b"1234") as response:
            assert response.status == 200
        assert (await client.call("files.completeUploadExternal", **fields))["ok"]

    async def test_empty_file_is_refused(self, client: Client) -> None:
        wanted = {"filename": "a.txt", "length": "0"}
        assert not (await client.call("files.getUploadURLExternal", **wanted))["ok"]

    async def test_download_needs_the_token(self, client: Client) -> None:
        slack = client.server.slack
        slack.say(slack.direct(ANN), person=ANN, files={"a.txt": b"data"})
        (number,) = slack.contents
        url = f"{client.server.url}/files-pri/{number}/a.txt"
        async with client.session.get(url, allow_redirects=False) as response:
            assert response.status == 302
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with client.session.get(url, headers=headers) as response:
            assert await response.read() == b"data"


class TestLimits:
    async def test_method_of_tier_3_has_50_calls_per_minute(self) -> None:
        clock = FakeClock()
        limits = RateLimits(clock)
        waits = [limits.count("t", "chat.update", "C1") for _ in range(51)]
        assert [*map(bool, waits)] == [False] * 50 + [True]
        assert limits.count("other workspace", "chat.update", "C1") == 0
        await clock.advance(60)
        assert limits.count("t", "chat.update", "C1") == 0

    async def test_posts_to_a_channel_have_one_second_each_after_a_short_burst(self) -> None:
        clock = FakeClock()
        limits = RateLimits(clock)
        waits = [limits.count("t", "chat.postMessage", "C1") for _ in range(4)]
        assert [*map(bool, waits)] == [False, False, False, True]
        assert limits.count("t", "chat.postMessage", "C2") == 0
        await clock.advance(1)
        assert limits.count("t", "chat.postMessage", "C1") == 0
        assert limits.count("t", "chat.postMessage", "C1") > 0

    async def test_refused_call_says_how_many_seconds_to_wait(self, client: Client) -> None:
        answers = [await client.post(text="x") for _ in range(4)]
        assert (answers[-1]["status"], answers[-1]["error"]) == (429, "ratelimited")
        assert int(answers[-1]["Retry-After"]) >= 1


class TestSocketMode:
    async def test_address_can_be_used_once(self, client: Client) -> None:
        opened = await client.call("apps.connections.open", APP_TOKEN)
        async with client.session.ws_connect(opened["url"]) as socket:
            assert (await socket.receive_json())["type"] == "hello"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.session.ws_connect(opened["url"])

    async def test_app_has_at_most_ten_connections(self, client: Client) -> None:
        sockets = [await client.connect() for _ in range(MAX_CONNECTIONS + 1)]
        greetings = [await one.receive_json() for one in sockets]
        assert [one.get("num_connections") for one in greetings[:-1]] == [*range(1, 11)]
        assert greetings[-1]["reason"] == "too_many_websockets"
        for one in sockets:
            await one.close()

    async def test_event_goes_to_one_of_the_connections(self, client: Client) -> None:
        first, second = await client.connect(), await client.connect()
        for one in (first, second):
            await one.receive_json()
        slack = client.server.slack
        for number in range(20):
            slack.say(slack.direct(ANN), str(number), person=ANN)
        await client.server.until(
            lambda: sum(len(one.unacknowledged) for one in client.server.sockets.open) == 20
        )
        counts = [len(one.unacknowledged) for one in client.server.sockets.open]
        assert all(counts)
        await first.close()
        await second.close()

    async def test_mention_in_a_channel_is_two_events(self, client: Client) -> None:
        socket = await client.connect()
        await socket.receive_json()
        slack = client.server.slack
        slack.say(slack.add_channel(), f"<@{slack.workspace.bot}> hi", person=ANN)
        events = [(await socket.receive_json())["payload"] for _ in range(2)]
        assert [one["event"]["type"] for one in events] == ["message", "app_mention"]
        assert events[0]["event_id"] != events[1]["event_id"]
        assert events[0]["event"]["ts"] == events[1]["event"]["ts"]
        await socket.close()

    async def test_unacknowledged_event_comes_again_on_another_connection(
        self, client: Client
    ) -> None:
        first = await client.connect()
        await first.receive_json()
        slack = client.server.slack
        slack.say(slack.direct(ANN), "hi", person=ANN)
        sent = await first.receive_json()
        assert (sent["retry_attempt"], sent["accepts_response_payload"]) == (0, False)
        second = await client.connect()
        await second.receive_json()
        await first.close()
        again = await second.receive_json()
        assert again["envelope_id"] != sent["envelope_id"]
        assert again["payload"]["event_id"] == sent["payload"]["event_id"]
        assert again["retry_attempt"] == 1
        await second.send_json({"envelope_id": again["envelope_id"]})
        await client.server.acknowledged()
        await second.close()

    @pytest.mark.slow
    async def test_event_without_acknowledgment_within_three_seconds_comes_again(
        self, client: Client
    ) -> None:
        socket = await client.connect()
        await socket.receive_json()
        slack = client.server.slack
        slack.say(slack.direct(ANN), "hi", person=ANN)
        sent = await socket.receive_json()
        with anyio.fail_after(20):
            again = await socket.receive_json()
        assert again["payload"]["event_id"] == sent["payload"]["event_id"]
        assert (again["retry_attempt"], again["retry_reason"]) == (1, "timeout")
        await socket.close()

    async def test_press_and_command_take_a_payload_with_the_acknowledgment(
        self, client: Client
    ) -> None:
        socket = await client.connect()
        await socket.receive_json()
        slack = client.server.slack
        envelope = slack.command(slack.direct(ANN), "hermes", ANN, "help")
        sent = await socket.receive_json()
        assert sent["accepts_response_payload"]
        payload = {"text": "yes"}
        await socket.send_json({"envelope_id": sent["envelope_id"], "payload": payload})
        await client.server.acknowledged()
        assert client.server.sockets.envelopes[envelope].response == payload
        await socket.close()
