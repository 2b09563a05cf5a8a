"""The emulator enforces Slack's documented rules; each test quotes its rule.

The rules of blocks are quoted as slack_sdk repeats them in its own documentation.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import Struct

from emulators.slack.limits import RateLimits
from emulators.slack.server import SlackServer, serve_slack
from emulators.slack.socket_mode import MAX_CONNECTIONS
from hermes.testing.clock import FakeClock
from support.slack import ANN, APP_TOKEN, TOKEN, emulator


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


@asynccontextmanager
async def timed_client() -> AsyncGenerator[tuple[Client, FakeClock]]:
    """A client, and the clock of its emulator."""
    clock = FakeClock()
    async with serve_slack(emulator(clock=clock)) as server, aiohttp.ClientSession() as session:
        yield Client(server, session), clock


def section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def button(**more: object) -> dict[str, object]:
    text = {"type": "plain_text", "text": "Yes"}
    return {"type": "button", "text": text, "value": "v", "action_id": "a", **more}


class TestTokens:
    """Tokens have types: xapp- opens connections, xoxb- does everything else."""

    async def test_token_is_required(self, client: Client) -> None:
        """Slack, "chat.postMessage": "not_authed: No authentication token provided." """
        assert (await client.call("auth.test", ""))["error"] == "not_authed"

    async def test_unknown_token_is_invalid(self, client: Client) -> None:
        """Slack, "chat.postMessage": "invalid_auth: Some aspect of authentication cannot be
        validated." """
        assert (await client.call("auth.test", "xoxb-wrong"))["error"] == "invalid_auth"

    async def test_each_method_takes_one_type_of_token(self, client: Client) -> None:
        """Slack, "chat.postMessage": "not_allowed_token_type: The token type used in this
        request is not allowed." """
        for method, token in (("apps.connections.open", TOKEN), ("auth.test", APP_TOKEN)):
            assert (await client.call(method, token))["error"] == "not_allowed_token_type"

    async def test_answers_list_the_scopes_and_name_the_missing_one(self, client: Client) -> None:
        """Slack, "chat.postMessage": "missing_scope: The token used is not granted the specific
        scope permissions required to complete this request." The header with the scopes is
        observed."""
        workspace = client.server.slack.workspace
        workspace.scopes = frozenset({"commands"})
        assert (await client.call("auth.test"))["x-oauth-scopes"] == "commands"
        refused = await client.post(text="x")
        assert (refused["error"], refused["needed"]) == ("missing_scope", "chat:write")

    async def test_app_token_is_a_header(self, client: Client) -> None:
        """Slack, "apps.connections.open": "you will need to pass this token in the HTTP
        Authorization header of your request; passing it as a POST parameter will result in an
        error", "missing_args: An app-level token wasn't provided." """
        method = f"{client.server.api_url}/apps.connections.open"
        async with client.session.post(method, data={"token": APP_TOKEN}) as response:
            assert (await response.json())["error"] == "missing_args"
        assert (await client.call("apps.connections.open", APP_TOKEN))["ok"]

    async def test_unknown_method_is_named(self, client: Client) -> None:
        """Observed behaviour, not documented."""
        assert (await client.call("chat.shout"))["error"] == "unknown_method"


class TestMessages:
    async def test_message_needs_text_or_blocks(self, client: Client) -> None:
        """Slack, "chat.postMessage": "no_text: No message text provided." """
        assert (await client.post(text=""))["error"] == "no_text"

    async def test_text_is_truncated_after_40000_characters(self, client: Client) -> None:
        """Slack, "chat.postMessage": "Slack will truncate messages containing more than 40,000
        characters." """
        sent = await client.post(text="x" * 40_001)
        assert len(sent["message"]["text"]) == 40_000
        assert sent["response_metadata"]["messages"]

    async def test_edited_text_has_at_most_4000_characters(self, client: Client) -> None:
        """Slack, "chat.update": "msg_too_long: Message text is too long. The text field cannot
        exceed 4,000 characters." """
        sent = await client.post(text="x")
        fields = {"channel": sent["channel"], "ts": sent["ts"]}
        refused = await client.call("chat.update", text="x" * 4001, **fields)
        assert refused["error"] == "msg_too_long"
        assert (await client.call("chat.update", text="x" * 4000, **fields))["ok"]

    async def test_edit_without_blocks_removes_the_former_ones(self, client: Client) -> None:
        """Slack, "chat.update": "If the text argument is provided and blocks are not provided, the
        blocks will be removed, and the provided text will be used for message rendering." """
        sent = await client.post(text="x", blocks=[section("x")])
        fields = {"channel": sent["channel"], "ts": sent["ts"]}
        post = client.server.slack.messages[sent["channel"], sent["ts"]]
        await client.call("chat.update", text="y", blocks=[section("y")], **fields)
        assert post.object["blocks"]
        await client.call("chat.update", text="y", **fields)
        assert post.object["blocks"] == []

    async def test_only_own_messages_can_be_edited(self, client: Client) -> None:
        """Slack, "chat.update": "Only messages posted by the authenticated user are able to be
        updated using this method.", "message_not_found: No message exists with the requested
        timestamp." """
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
        """Slack, "chat.postMessage": "channel_not_found: Value passed for channel was
        invalid.", "not_in_channel: Cannot post user messages to a channel they are not in.",
        "is_archived: Channel has been archived." """
        slack = client.server.slack
        foreign, old = slack.add_channel("foreign", member=False), slack.add_channel("old")
        slack.channels[old].archived = True
        wrong = {"C404": "channel_not_found", foreign: "not_in_channel", old: "is_archived"}
        for channel, error in wrong.items():
            assert (await client.post(channel=channel, text="x"))["error"] == error

    async def test_thread_must_exist(self, client: Client) -> None:
        """Observed behaviour, not documented."""
        assert (await client.post(text="x", thread_ts="1.2"))["error"] == "invalid_thread_ts"

    async def test_arguments_can_be_json(self, client: Client) -> None:
        """Slack, "conversations.replies": "Content types: application/x-www-form-urlencoded,
        application/json" """
        slack = client.server.slack
        message = slack.say(slack.direct(ANN), "hi", person=ANN)
        url = f"{client.server.api_url}/conversations.replies"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        body = {"channel": slack.direct(ANN), "ts": message}
        async with client.session.post(url, json=body, headers=headers) as response:
            assert len((await response.json())["messages"]) == 1

    async def test_history_has_no_replies_but_their_time(self, client: Client) -> None:
        """Slack, "conversations.replies": "Retrieve a thread of messages posted to a
        conversation". That the history leaves replies out, and that the first message is there
        despite `oldest`, is observed behaviour, not documented."""
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
        """Slack, "reactions.add": "already_reacted: The specified item already has the
        user/reaction combination."; "reactions.remove": "no_reaction: The specified item does
        not have the user/reaction combination." """
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
            # "Blocks": "You can include up to 50 blocks in each message"
            [section("x")] * 51,
            # "Section block": "Maximum length for the text in this field is 3000 characters."
            [section("x" * 3001)],
            # Observed: a text must have at least one character.
            [section("")],
            # "Section block": "This field is not required if a valid array of fields objects is
            # provided instead."
            [{"type": "section"}],
            # Observed: an unknown type is refused.
            [{"type": "carousel"}],
            [{"type": "actions", "elements": []}],
            # "Actions block": "There is a maximum of 25 elements in each action block."
            [{"type": "actions", "elements": [button(action_id=str(n)) for n in range(26)]}],
            # "Button element": "Should be unique among all other action_ids in the containing
            # block."
            [{"type": "actions", "elements": [button(), button()]}],
            # "Button element": "The value to send along with the interaction payload. Maximum
            # length is 2000 characters."
            [{"type": "actions", "elements": [button(value="x" * 2001)]}],
            # "Button element": primary, danger, or "If you don't include this field, the default
            # button style will be used."
            [{"type": "actions", "elements": [button(style="green")]}],
            # "Button element": "Maximum length is 255 characters."
            [{"type": "actions", "elements": [button(action_id="x" * 256)]}],
            # "Button element": "Maximum length for the text in this field is 75 characters."
            [
                {
                    "type": "actions",
                    "elements": [button(text={"type": "plain_text", "text": "x" * 76})],
                }
            ],
            # "Button element": "Can only be of type: plain_text."
            [{"type": "actions", "elements": [button(text={"type": "mrkdwn", "text": "x"})]}],
            # "Header block": "Maximum length for the text in this field is 150 characters."
            [{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}],
            # "Markdown block": "The cumulative limit for all markdown blocks in a single payload is
            # 12,000 characters."
            [{"type": "markdown", "text": "x" * 6_001}, {"type": "markdown", "text": "x" * 6_000}],
        ],
        ids=lambda blocks: str(blocks)[:40],
    )
    async def test_wrong_blocks_are_refused(
        self, client: Client, blocks: list[dict[str, object]]
    ) -> None:
        """Slack, "chat.postMessage": "invalid_blocks: Blocks submitted with this message are not
        valid." """
        refused = await client.post(text="x", blocks=blocks)
        assert refused["error"] == "invalid_blocks"
        assert refused["response_metadata"]["messages"]

    async def test_blocks_must_be_a_list(self, client: Client) -> None:
        """Slack, "chat.postMessage": "invalid_blocks_format: The blocks is not a valid JSON
        object or doesn't match the Block Kit syntax." """
        assert (await client.post(text="x", blocks="{}"))["error"] == "invalid_blocks_format"


class TestFiles:
    """A file is uploaded to an address that is asked for, then completed in a channel."""

    async def test_length_must_match_and_upload_precede_completion(self, client: Client) -> None:
        """Slack, "files.getUploadURLExternal": "Upload a file by making a POST request to the
        upload URL.", "a non-200 response indicates a failure". What a wrong length does is
        observed behaviour, not documented."""
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
        """Slack, "files.getUploadURLExternal": "missing_argument: A required argument was not
        provided. Typically only occurs when the length provided is 0." """
        wanted = {"filename": "a.txt", "length": "0"}
        assert not (await client.call("files.getUploadURLExternal", **wanted))["ok"]

    async def test_download_needs_the_token(self, client: Client) -> None:
        """Observed behaviour, not documented: without the token, the page for signing in is
        shown."""
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
        """Slack, "Rate limits": "Web API Tier 3: 50+ per minute", "Calls to the same method for
        other workspaces for this app are also not restricted." """
        clock = FakeClock()
        limits = RateLimits(clock)
        waits = [limits.count("t", "chat.update", "C1") for _ in range(51)]
        assert [*map(bool, waits)] == [False] * 50 + [True]
        assert limits.count("other workspace", "chat.update", "C1") == 0
        await clock.advance(60)
        assert limits.count("t", "chat.update", "C1") == 0

    async def test_posts_to_a_channel_have_one_second_each_after_a_short_burst(self) -> None:
        """Slack, "Rate limits": "In general, apps may post no more than one message per second
        per channel", "We allow bursts over that limit for short periods." How long they are is
        not documented."""
        clock = FakeClock()
        limits = RateLimits(clock)
        waits = [limits.count("t", "chat.postMessage", "C1") for _ in range(4)]
        assert [*map(bool, waits)] == [False, False, False, True]
        assert limits.count("t", "chat.postMessage", "C2") == 0
        await clock.advance(1)
        assert limits.count("t", "chat.postMessage", "C1") == 0
        assert limits.count("t", "chat.postMessage", "C1") > 0

    async def test_refused_call_says_how_many_seconds_to_wait(self, client: Client) -> None:
        """Slack, "Rate limits": "Slack will return a HTTP 429 Too Many Requests error, and a
        Retry-After HTTP header containing the number of seconds until you can retry." """
        answers = [await client.post(text="x") for _ in range(4)]
        assert (answers[-1]["status"], answers[-1]["error"]) == (429, "ratelimited")
        assert int(answers[-1]["Retry-After"]) >= 1


class TestSocketMode:
    async def test_address_can_be_used_once(self, client: Client) -> None:
        """Slack, "apps.connections.open": "Generate a temporary Socket Mode WebSocket URL that
        your app can connect to"; that it can be used once is observed behaviour, not
        documented."""
        opened = await client.call("apps.connections.open", APP_TOKEN)
        async with client.session.ws_connect(opened["url"]) as socket:
            assert (await socket.receive_json())["type"] == "hello"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.session.ws_connect(opened["url"])

    async def test_app_has_at_most_ten_connections(self, client: Client) -> None:
        """Slack, "Using Socket Mode": "Socket Mode allows your app to maintain up to 10 open
        WebSocket connections at the same time." The reason sent to the eleventh is
        observed."""
        sockets = [await client.connect() for _ in range(MAX_CONNECTIONS + 1)]
        greetings = [await one.receive_json() for one in sockets]
        assert [one.get("num_connections") for one in greetings[:-1]] == [*range(1, 11)]
        assert greetings[-1]["reason"] == "too_many_websockets"
        for one in sockets:
            await one.close()

    async def test_event_goes_to_one_of_the_connections(self, client: Client) -> None:
        """Slack, "Using Socket Mode": "When multiple connections are active, each payload may
        be sent to any of the connections." """
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
        """Observed behaviour, not documented: apps that hear both kinds of events get both."""
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
        """Slack, "Using Socket Mode": "Your app still needs to acknowledge receiving each event
        so that Slack knows whether to retry." That an event of a lost connection comes again is
        observed."""
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

    async def test_event_is_sent_again_up_to_three_times(self, client: Client) -> None:
        """Slack, "Events API": "retrying a failed request up to 3 times in a gradually
        increasing timetable". The emulator does not wait between them."""
        server, slack = client.server, client.server.slack
        sockets = [await client.connect() for _ in range(5)]
        for one in sockets:
            await one.receive_json()
        connections = [*server.sockets.connections]
        slack.say(slack.direct(ANN), "hi", person=ANN)
        attempts: list[int] = []
        for _ in range(4):
            await server.until(lambda: any(one.unacknowledged for one in connections))
            place = next(n for n, one in enumerate(connections) if one.unacknowledged)
            attempts += [one.attempt for one in connections[place].unacknowledged.values()]
            await sockets[place].close()
        await server.until(lambda: server.sockets.lost == 1)
        assert attempts == [0, 1, 2, 3]
        for one in sockets:
            await one.close()

    async def test_event_without_acknowledgment_within_three_seconds_comes_again(self) -> None:
        """Slack, "Events API": "Your app should respond to the event request with an HTTP 2xx
        within three seconds. If it does not, we'll consider the event delivery attempt failed."
        That it holds for Socket Mode, and the reason given, are observed."""
        async with timed_client() as (client, clock):
            socket = await client.connect()
            await socket.receive_json()
            slack = client.server.slack
            slack.say(slack.direct(ANN), "hi", person=ANN)
            sent = await socket.receive_json()
            await clock.advance(3)
            again = await socket.receive_json()
            await socket.close()
        assert again["payload"]["event_id"] == sent["payload"]["event_id"]
        assert (again["retry_attempt"], again["retry_reason"]) == (1, "timeout")

    async def test_command_must_be_acknowledged_within_three_seconds(self) -> None:
        """Slack, "Handling user interaction": "This must be sent within 3 seconds of receiving the
        payload. If your app doesn't do that, the Slack user who interacted with the app will see
        an error message" """
        async with timed_client() as (client, clock):
            socket = await client.connect()
            await socket.receive_json()
            slack, sockets = client.server.slack, client.server.sockets
            envelope = slack.command(slack.direct(ANN), "hermes", ANN, "help")
            sent = await socket.receive_json()
            await clock.advance(2.9)
            assert not sockets.envelopes[envelope].given_up
            await clock.advance(0.2)
            assert sockets.envelopes[envelope].given_up
            await socket.send_json({"envelope_id": sent["envelope_id"]})
            await socket.close()
        assert sockets.lost == 1
        assert not sockets.envelopes[envelope].acknowledged

    async def test_press_and_command_take_a_payload_with_the_acknowledgment(
        self, client: Client
    ) -> None:
        """Slack, "Using Socket Mode": "You can use the accepts_response_payload to determine
        whether a response can include additional information." """
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
