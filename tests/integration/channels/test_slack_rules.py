"""slack_sdk is refused what Slack documents; each test quotes its rule.

The rules of blocks and elements, except those of the button, are quoted as slack_sdk repeats them
in its own documentation.
"""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from msgspec import Struct
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from emulators.slack.limits import PER_MINUTE, RateLimits
from emulators.slack.server import SlackServer, serve_slack
from hermes.testing.clock import FakeClock
from support.slack import ANN, TOKEN, emulator

Json = dict[str, object]


class Sdk(Struct, frozen=True):
    """Slack's own client of the Web API."""

    server: SlackServer
    client: AsyncWebClient
    clock: FakeClock

    @property
    def direct(self) -> str:
        return self.server.slack.direct(ANN)

    async def post(self, *blocks: Json) -> Any:
        return await self.client.chat_postMessage(channel=self.direct, text="x", blocks=[*blocks])

    async def refused(self, method: str, **fields: object) -> str:
        with pytest.raises(SlackApiError) as caught:
            await self.client.api_call(method, json=fields)
        return str(caught.value.response["error"])

    async def wrong(self, *blocks: Json) -> str:
        """What is wrong with blocks."""
        with pytest.raises(SlackApiError) as caught:
            await self.post(*blocks)
        assert caught.value.response["error"] == "invalid_blocks"
        return str(caught.value.response["response_metadata"]["messages"])


@pytest.fixture
async def sdk() -> AsyncGenerator[Sdk]:
    clock = FakeClock()
    async with serve_slack(emulator(clock=clock, limited=False)) as server:
        yield Sdk(server, AsyncWebClient(TOKEN, base_url=f"{server.api_url}/"), clock)


def plain_text(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def section(**more: object) -> Json:
    return {"type": "section", **more}


def menu(count: int, label: str = "A", value: str = "v", **more: object) -> Json:
    options = [{"text": plain_text(label), "value": value} for _ in range(count)]
    element: Json = {"type": "static_select", "action_id": "a", "options": options, **more}
    return {"type": "actions", "elements": [element]}


class TestBlocks:
    async def test_block_id_is_limited(self, sdk: Sdk) -> None:
        """Slack, "Section block": "Maximum length for this field is 255 characters." """
        await sdk.post({"type": "divider", "block_id": "x" * 255})
        assert "block_id" in await sdk.wrong({"type": "divider", "block_id": "x" * 256})

    async def test_fields_of_a_section_are_limited(self, sdk: Sdk) -> None:
        """Slack, "Section block": "Maximum number of items is 10. Maximum length for the text
        in each item is 2000 characters." """
        await sdk.post(section(fields=[plain_text("x")] * 10))
        assert "fields" in await sdk.wrong(section(fields=[plain_text("x")] * 11))
        assert "2001" in await sdk.wrong(section(fields=[plain_text("x" * 2001)]))

    async def test_elements_of_a_context_are_limited(self, sdk: Sdk) -> None:
        """Slack, "Context block": "An array of image elements and text objects. Maximum number
        of items is 10." """
        await sdk.post({"type": "context", "elements": [plain_text("x")] * 10})
        assert "elements" in await sdk.wrong(
            {"type": "context", "elements": [plain_text("x")] * 11}
        )

    async def test_image_needs_a_short_text(self, sdk: Sdk) -> None:
        """Slack, "Image block": "A plain-text summary of the image. This should not contain any
        markup. Maximum length for this field is 2000 characters.", "The URL of the image to be
        displayed. Maximum length for this field is 3000 characters." """
        image: Json = {"type": "image", "image_url": "https://x.org/a.png", "alt_text": "x"}
        await sdk.post(image)
        assert "alt_text" in await sdk.wrong({**image, "alt_text": ""})
        assert "alt_text" in await sdk.wrong({**image, "alt_text": "x" * 2001})
        assert "image_url" in await sdk.wrong({**image, "image_url": "x" * 3001})

    async def test_options_of_a_menu_are_limited(self, sdk: Sdk) -> None:
        """Slack, "Select menu element": "An array of option objects. Maximum number of options
        is 100." """
        await sdk.post(menu(100))
        assert "options" in await sdk.wrong(menu(101))
        assert "options" in await sdk.wrong(menu(0))

    async def test_text_of_an_option_is_limited(self, sdk: Sdk) -> None:
        """slack_sdk, `Option`: "A short, user-facing string to label this option to users.
        Cannot exceed 75 characters.", of its value: "Cannot exceed 150 characters." """
        await sdk.post(menu(1, "x" * 75, "v" * 150))
        assert "76" in await sdk.wrong(menu(1, "x" * 76))
        assert "value" in await sdk.wrong(menu(1, "x", "v" * 151))

    async def test_placeholder_of_a_menu_is_limited(self, sdk: Sdk) -> None:
        """Slack, "Select menu element": "Maximum length for the text in this field is 150
        characters." """
        await sdk.post(menu(1, placeholder=plain_text("x" * 150)))
        assert "151" in await sdk.wrong(menu(1, placeholder=plain_text("x" * 151)))

    async def test_overflow_menu_has_up_to_five_options(self, sdk: Sdk) -> None:
        """Slack, "Overflow menu element": "Maximum number of options is 5, minimum is 1." """
        await sdk.post(menu(5, type="overflow"))
        assert "options" in await sdk.wrong(menu(6, type="overflow"))

    async def test_element_beside_a_section_is_checked(self, sdk: Sdk) -> None:
        """Slack, "Button element": "A URL to load in the user's browser when the button is
        clicked. Maximum length is 3000 characters." """
        button: Json = {"type": "button", "text": plain_text("x"), "action_id": "a"}
        await sdk.post(section(text=plain_text("x"), accessory={**button, "url": "x" * 3000}))
        long = {**button, "url": "x" * 3001}
        assert "url" in await sdk.wrong(section(text=plain_text("x"), accessory=long))

    async def test_all_blocks_together_are_limited(self, sdk: Sdk) -> None:
        """Slack, "chat.postMessage": "msg_blocks_too_long: Blocks submitted with this message
        are too long." How long they may be is observed behaviour, not documented."""
        with pytest.raises(SlackApiError, match="msg_blocks_too_long"):
            await sdk.post(*[section(text=plain_text("x" * 3000))] * 5)
        await sdk.post(*[section(text=plain_text("x" * 3000))] * 4)


class TestMessages:
    async def test_attachments_are_limited(self, sdk: Sdk) -> None:
        """Slack, "chat.postMessage": "A maximum of 100 attachments are allowed on a message." """
        fields = {"channel": sdk.direct, "text": "x"}
        one = {"text": "x"}
        await sdk.client.chat_postMessage(**fields, attachments=[one] * 100)
        refused = await sdk.refused("chat.postMessage", **fields, attachments=[one] * 101)
        assert refused == "too_many_attachments"

    async def test_name_of_a_reaction_is_checked(self, sdk: Sdk) -> None:
        """Slack, "reactions.add": "invalid_name: Value passed for name was invalid.", "name may
        indicate a modifier by appending ::skin-tone- and a number from 2 to 6" """
        sent = await sdk.post()
        fields = {"channel": sdk.direct, "timestamp": sent["ts"], "name": "👀"}
        assert await sdk.refused("reactions.add", **fields) == "invalid_name"
        for name in ("thumbsup::skin-tone-1", "thumbsup::dark"):
            assert await sdk.refused("reactions.add", **{**fields, "name": name}) == "invalid_name"
        await sdk.client.reactions_add(**{**fields, "name": "thumbsup::skin-tone-6"})

    async def test_reactions_of_one_person_are_limited(self, sdk: Sdk) -> None:
        """Slack, "reactions.add": "too_many_reactions: The limit for reactions a person may add
        to the item has been reached." The number is observed behaviour, not documented."""
        sent = await sdk.post()
        fields = {"channel": sdk.direct, "timestamp": sent["ts"]}
        for number in range(23):
            await sdk.client.reactions_add(**fields, name=f"e{number}")
        assert await sdk.refused("reactions.add", **fields, name="e23") == "too_many_reactions"

    async def test_assistant_has_up_to_four_prompts(self, sdk: Sdk) -> None:
        """Slack, "assistant.threads.setSuggestedPrompts": "Use this method to set up to four
        suggested prompts in an app thread." """
        channel, thread = sdk.server.slack.open_assistant(ANN)
        fields = {"channel_id": channel, "thread_ts": thread}
        prompts = [{"title": "t", "message": "m"}]
        await sdk.client.assistant_threads_setSuggestedPrompts(**fields, prompts=prompts * 4)
        refused = await sdk.refused(
            "assistant.threads.setSuggestedPrompts", **fields, prompts=prompts * 5
        )
        assert refused == "invalid_arguments"

    async def test_status_is_removed_after_two_minutes(self, sdk: Sdk) -> None:
        """Slack, "assistant.threads.setStatus": "A two minute timeout applies, which will cause the
        status to be removed if no message has been sent." """
        channel, thread = sdk.server.slack.open_assistant(ANN)
        fields = {"channel_id": channel, "thread_ts": thread, "status": "is thinking"}
        await sdk.client.assistant_threads_setStatus(**fields)
        sdk.clock.skip(119)
        assert sdk.server.slack.status(channel, thread) == "is thinking"
        sdk.clock.skip(1)
        assert sdk.server.slack.status(channel, thread) == ""
        await sdk.client.assistant_threads_setStatus(**fields)
        await sdk.client.chat_postMessage(channel=channel, thread_ts=thread, text="x")
        assert sdk.server.slack.status(channel, thread) == ""

    async def test_loading_messages_are_limited(self, sdk: Sdk) -> None:
        """Slack, "assistant.threads.setStatus": "The list of messages to rotate through as a
        loading indicator. Maximum of 10 messages." """
        channel, thread = sdk.server.slack.open_assistant(ANN)
        fields = {"channel_id": channel, "thread_ts": thread, "status": "is thinking"}
        method = "assistant.threads.setStatus"
        await sdk.client.api_call(method, json={**fields, "loading_messages": ["x"] * 10})
        refused = await sdk.refused(method, **fields, loading_messages=["x"] * 11)
        assert refused == "invalid_arguments"


class TestResponses:
    def address(self, sdk: Sdk) -> str:
        return sdk.server.slack.response_url(sdk.direct)

    async def test_response_url_is_used_up_to_five_times(self, sdk: Sdk) -> None:
        """Slack, "Handling user interaction": "These responses can be sent up to 5 times within
        30 minutes of receiving the payload." """
        webhook = AsyncWebhookClient(self.address(sdk))
        answers = [await webhook.send(text=str(number)) for number in range(6)]
        assert [one.status_code for one in answers] == [200] * 5 + [404]
        assert answers[-1].body == "used_url"
        assert [one.text for one in sdk.server.slack.posts(sdk.direct)] == list("01234")

    async def test_response_url_expires_after_thirty_minutes(self, sdk: Sdk) -> None:
        """Slack, "Handling user interaction": "These responses can be sent up to 5 times within
        30 minutes of receiving the payload." """
        webhook = AsyncWebhookClient(self.address(sdk))
        sdk.clock.skip(29 * 60)
        assert (await webhook.send(text="in time")).status_code == 200
        sdk.clock.skip(61)
        assert (await webhook.send(text="late")).body == "expired_url"

    async def test_commands_and_presses_have_an_address_each(self, sdk: Sdk) -> None:
        """Slack, "Handling user interaction": "This response_url is unique to each payload, and
        can be used to publish messages back to where the interaction happened." """
        slack = sdk.server.slack
        sent: list[Json] = []

        def keep(kind: str, payload: Json) -> str:
            sent.append(payload)
            return kind

        slack.on_envelope = keep
        slack.command(sdk.direct, "hermes", ANN)
        button = {"type": "button", "text": plain_text("A"), "action_id": "a", "value": "v"}
        message = await sdk.post({"type": "actions", "elements": [button]})
        slack.press(sdk.direct, message["ts"], "v", ANN)
        assert len({str(one["response_url"]) for one in sent}) == 2


class TestFiles:
    async def test_name_and_length_are_required(self, sdk: Sdk) -> None:
        """Slack, "files.getUploadURLExternal": "length integer Required", "filename string
        Required", "missing_argument: A required argument was not provided. Typically only
        occurs when the length provided is 0." """
        url = sdk.client.files_getUploadURLExternal
        with pytest.raises(SlackApiError, match="invalid_arguments"):
            await url(filename="", length=5)
        with pytest.raises(SlackApiError, match="missing_argument"):
            await url(filename="a.txt", length=0)

    async def test_upload_is_completed_with_its_files(self, sdk: Sdk) -> None:
        """Slack, "files.completeUploadExternal": "Array of file ids and their corresponding
        (optional) titles." """
        fields = {"channel_id": sdk.direct}
        refused = await sdk.refused("files.completeUploadExternal", **fields, files=[])
        assert refused == "invalid_arguments"
        unknown = [{"id": "F404"}]
        refused = await sdk.refused("files.completeUploadExternal", **fields, files=unknown)
        assert refused == "file_not_found"

    async def test_several_files_are_one_message(self, sdk: Sdk) -> None:
        """Slack, "files.completeUploadExternal": "Channel ID where the file will be shared.",
        "The message text introducing the file in specified channels." """
        uploads = [{"filename": f"{n}.txt", "content": f"data {n}"} for n in range(11)]
        await sdk.client.files_upload_v2(
            channel=sdk.direct, file_uploads=uploads, initial_comment="Here."
        )
        (post,) = sdk.server.slack.posts(sdk.direct)
        assert (post.text, len(post.files)) == ("Here.", 11)


class TestLimits:
    @pytest.mark.parametrize(
        ("method", "count"),
        [
            ("reactions.remove", 20),  # "Web API Tier 2: 20+ per minute"
            ("chat.update", 50),  # "Web API Tier 3: 50+ per minute"
            ("users.info", 100),  # "Web API Tier 4: 100+ per minute"
        ],
    )
    async def test_tiers(self, method: str, count: int) -> None:
        """Slack, "Rate limits": "Your app's requests to the Web API are evaluated per method,
        per workspace. Rate limit windows are per minute." """
        clock = FakeClock()
        limits = RateLimits(clock)
        waits = [limits.count("t", method, "C1") for _ in range(count + 1)]
        assert [*map(bool, waits)] == [False] * count + [True]
        assert PER_MINUTE[method] == count
        assert limits.count("t", "auth.test", "C1") == 0
        clock.skip(waits[-1])
        assert limits.count("t", method, "C1") == 0

    async def test_posts_of_a_workspace_are_limited(self) -> None:
        """Slack, "chat.postMessage": "There are limits governing your app's relationship with
        the entire workspace above that, limiting posting to several hundred messages per
        minute." """
        limits = RateLimits(FakeClock())
        waits = [limits.count("t", "chat.postMessage", f"C{n}") for n in range(301)]
        assert [*map(bool, waits)] == [False] * 300 + [True]
