"""slack_sdk and slack_bolt as they are, with their own clients, work with the emulator."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncSay
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from emulators.slack.server import SlackServer, serve_slack
from support.slack import ANN, APP_TOKEN, TOKEN, emulator

pytestmark = pytest.mark.slow


@pytest.fixture
async def server() -> AsyncGenerator[SlackServer]:
    async with serve_slack(emulator()) as server:
        yield server


def web_client(server: SlackServer) -> AsyncWebClient:
    return AsyncWebClient(TOKEN, base_url=f"{server.api_url}/")


async def test_socket_mode_client_receives_and_acknowledges(server: SlackServer) -> None:
    received: asyncio.Queue[SocketModeRequest] = asyncio.Queue()

    async def listen(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
        await received.put(request)

    client = SocketModeClient(APP_TOKEN, web_client=web_client(server))
    client.socket_mode_request_listeners.append(listen)  # pyright: ignore[reportArgumentType]
    await client.connect()
    try:
        direct = server.slack.direct(ANN)
        server.slack.say(direct, "hello", person=ANN)
        request = await received.get()
        assert (request.type, request.retry_attempt) == ("events_api", 0)
        assert request.payload["event"]["text"] == "hello"
        await server.acknowledged()
        # Slack asks for a new connection; the client opens it and goes on.
        await server.sockets.disconnect("refresh_requested")
        await server.until(lambda: server.sockets.opened == 2)
        await server.connected()
        server.slack.say(direct, "again", person=ANN)
        assert (await received.get()).payload["event"]["text"] == "again"
    finally:
        await client.close()


async def test_bolt_app_answers_messages_commands_and_presses(server: SlackServer) -> None:
    app = AsyncApp(client=web_client(server))

    @app.event("message")
    async def answer(event: dict[str, str], say: AsyncSay) -> None:
        actions = [
            {"type": "button", "text": {"type": "plain_text", "text": "Yes"}, "value": "q:1",
             "action_id": "choice"}
        ]  # fmt: skip
        blocks = [{"type": "actions", "elements": actions}]
        await say(f"re: {event['text']}", thread_ts=event["ts"], blocks=blocks)

    @app.action("choice")
    async def chosen(ack: AsyncAck, say: AsyncSay) -> None:
        await ack()
        await say("chosen")

    @app.command("/hermes")
    async def command(ack: AsyncAck, command: dict[str, str]) -> None:
        await ack(f"you said {command['text']}")

    handler = AsyncSocketModeHandler(app, APP_TOKEN)
    await handler.connect_async()
    try:
        slack = server.slack
        direct = slack.direct(ANN)
        message = slack.say(direct, "hi", person=ANN)
        await server.until(lambda: bool(slack.posts(direct)))
        (post,) = slack.posts(direct)
        assert (post.text, post.thread) == ("re: hi", message)
        slack.press(direct, post.id, "q:1", ANN)
        await server.until(lambda: len(slack.posts(direct)) == 2)
        envelope = slack.command(direct, "hermes", ANN, "stop")
        await server.acknowledged()
        assert server.sockets.envelopes[envelope].response == {"text": "you said stop"}
    finally:
        await handler.close_async()


async def test_web_client_uploads_pages_and_reads_errors(server: SlackServer) -> None:
    client, slack = web_client(server), server.slack
    channel = slack.add_channel("general")
    await client.files_upload_v2(channel=channel, filename="a.txt", content="data")
    (post,) = slack.posts(channel)
    assert post.files == {"a.txt": b"data"}
    for number in range(5):
        slack.say(channel, f"m{number}", person=ANN)
    history = await client.conversations_history(channel=channel, limit=2)
    assert [one["text"] for one in history["messages"]] == ["m4", "m3"]
    cursor = history["response_metadata"]["next_cursor"]
    second = await client.conversations_history(channel=channel, limit=2, cursor=cursor)
    assert [one["text"] for one in second["messages"]] == ["m2", "m1"]
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel="C404", text="x")
    assert caught.value.response["error"] == "channel_not_found"
