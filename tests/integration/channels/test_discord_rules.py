"""The HTTP client of discord.py is refused what Discord documents; each test quotes its rule."""

from collections.abc import AsyncGenerator
from typing import Any

import discord
import pytest
from discord.http import HTTPClient, Route
from msgspec import Struct

from emulators.discord.server import DiscordServer, serve_discord
from hermes.testing.clock import FakeClock
from support.discord import ANN, TOKEN, emulator

Json = dict[str, object]


class Sdk(Struct, frozen=True):
    """discord.py's own client of the HTTP API, logged in."""

    server: DiscordServer
    http: HTTPClient
    clock: FakeClock

    @property
    def direct(self) -> str:
        return self.server.discord.direct(ANN)

    async def call(self, method: str, path: str, body: object = None) -> Any:
        return await self.http.request(Route(method, path), json=body)

    async def send(self, **fields: object) -> Any:
        return await self.call("POST", f"/channels/{self.direct}/messages", fields)

    async def refused(self, method: str, path: str, body: object = None) -> discord.HTTPException:
        with pytest.raises(discord.HTTPException) as caught:
            await self.call(method, path, body)
        return caught.value

    async def not_sent(self, **fields: object) -> str:
        """What is wrong with a message."""
        path = f"/channels/{self.direct}/messages"
        return (await self.refused("POST", path, {"content": "x", **fields})).text


@pytest.fixture
async def sdk(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Sdk]:
    clock = FakeClock()
    async with serve_discord(emulator(clock=clock, limited=False)) as server:
        monkeypatch.setattr(Route, "BASE", server.api_url)
        client = discord.Client(intents=discord.Intents.none())
        async with client:
            await client.login(TOKEN)
            yield Sdk(server, client.http, clock)


class TestEmbeds:
    async def test_message_has_at_most_ten_embeds(self, sdk: Sdk) -> None:
        """Discord, resources/message: "Up to 10 rich embeds (up to 6000 characters)" """
        one = {"title": "t"}
        await sdk.send(embeds=[one] * 10)
        assert "embeds" in await sdk.not_sent(embeds=[one] * 11)

    @pytest.mark.parametrize(
        ("field", "embed", "most"),
        [
            ("title", lambda text: {"title": text}, 256),
            ("description", lambda text: {"description": text}, 4096),
            ("fields.name", lambda text: {"fields": [{"name": text, "value": "v"}]}, 256),
            ("fields.value", lambda text: {"fields": [{"name": "n", "value": text}]}, 1024),
            ("footer.text", lambda text: {"footer": {"text": text}}, 2048),
            ("author.name", lambda text: {"author": {"name": text}}, 256),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_texts_of_embeds_are_limited(
        self, sdk: Sdk, field: str, embed: Any, most: int
    ) -> None:
        """Discord, resources/message: "title 256 characters", "description 4096 characters",
        "field.name 256 characters", "field.value 1024 characters", "footer.text 2048
        characters", "author.name 256 characters" """
        await sdk.send(embeds=[embed("x" * most)])
        assert f"embeds.{field}" in await sdk.not_sent(embeds=[embed("x" * (most + 1))])

    async def test_fields_of_embeds_are_limited(self, sdk: Sdk) -> None:
        """Discord, resources/message: "Up to 25 field objects" """
        field = {"name": "n", "value": "v"}
        await sdk.send(embeds=[{"fields": [field] * 25}])
        assert "embeds.fields" in await sdk.not_sent(embeds=[{"fields": [field] * 26}])

    async def test_all_embeds_together_are_limited(self, sdk: Sdk) -> None:
        """Discord, resources/message: "the combined sum of characters in all title, description,
        field.name, field.value, footer.text, and author.name fields across all embeds attached
        to a message must not exceed 6000 characters" """
        half = {"description": "x" * 3000}
        await sdk.send(embeds=[half, half])
        assert "embeds" in await sdk.not_sent(embeds=[half, half, {"title": "x"}])


class TestMessages:
    async def test_white_space_is_an_empty_message(self, sdk: Sdk) -> None:
        """Discord, "Opcodes and Status Codes": "50006 Cannot send an empty message"; that white
        space is empty is observed, not documented."""
        path = f"/channels/{sdk.direct}/messages"
        assert (await sdk.refused("POST", path, {"content": " \n"})).code == 50006

    async def test_message_cannot_be_emptied(self, sdk: Sdk) -> None:
        """Discord, "Opcodes and Status Codes": "50006 Cannot send an empty message"; that it
        holds for edits is observed, not documented."""
        sent = await sdk.send(content="x")
        path = f"/channels/{sdk.direct}/messages/{sent['id']}"
        assert (await sdk.refused("PATCH", path, {"content": ""})).code == 50006

    async def test_mentions_are_limited(self, sdk: Sdk) -> None:
        """Discord, resources/message: "Array of user ids to mention, max 100" """
        await sdk.send(content="x", allowed_mentions={"users": ["1"] * 100})
        wrong = await sdk.not_sent(allowed_mentions={"users": ["1"] * 101})
        assert "allowed_mentions.users" in wrong

    async def test_mentions_of_roles_are_limited(self, sdk: Sdk) -> None:
        """Discord, resources/message: "Array of role ids to mention, max 100" """
        wrong = await sdk.not_sent(allowed_mentions={"roles": ["1"] * 101})
        assert "allowed_mentions.roles" in wrong

    async def test_description_of_a_file_is_limited(self, sdk: Sdk) -> None:
        """Discord, resources/message: "description (alt text) for the file (max 1024
        characters)" """
        wrong = await sdk.not_sent(attachments=[{"id": 0, "description": "x" * 1025}])
        assert "description" in wrong

    async def test_kinds_of_reactions_are_limited(self, sdk: Sdk) -> None:
        """Discord, "Opcodes and Status Codes": "30010 Maximum number of reactions reached (20)" """
        sent = await sdk.send(content="x")
        path = f"/channels/{sdk.direct}/messages/{sent['id']}/reactions"
        for number in range(20):
            await sdk.call("PUT", f"{path}/e{number}/@me")
        await sdk.call("PUT", f"{path}/e3/@me")
        assert (await sdk.refused("PUT", f"{path}/e20/@me")).code == 30010

    async def test_threads_are_archived_after_one_of_four_times(self, sdk: Sdk) -> None:
        """Discord, resources/channel: "the thread will stop showing in the channel list after
        auto_archive_duration minutes of inactivity, can be set to: 60, 1440, 4320, 10080" """
        emulated = sdk.server.discord
        channel = emulated.add_channel(emulated.add_guild())
        message = emulated.say(channel, "hi", person=ANN)
        path = f"/channels/{channel}/messages/{message}/threads"
        wrong = await sdk.refused("POST", path, {"name": "n", "auto_archive_duration": 61})
        assert "auto_archive_duration" in wrong.text
        await sdk.call("POST", path, {"name": "n", "auto_archive_duration": 1440})


class TestComponents:
    def row(self, *components: object) -> list[object]:
        return [{"type": 1, "components": [*components]}]

    def menu(self, **more: object) -> list[object]:
        options = [{"label": "A", "value": "a"}]
        return self.row({"type": 3, "custom_id": "m", "options": options, **more})

    async def test_button_needs_a_label(self, sdk: Sdk) -> None:
        """Discord, "Component Reference": "Text that appears on the button; max 80 characters";
        that a button without an emoji needs one is observed, not documented."""
        blank = {"type": 2, "style": 2, "custom_id": "c", "label": ""}
        assert "style" in await sdk.not_sent(components=self.row(blank))

    async def test_link_button_has_an_address_instead_of_an_id(self, sdk: Sdk) -> None:
        """Discord, "Component Reference": "Link buttons must have a url, and cannot have a
        custom_id", "URL for link-style buttons; max 512 characters" """
        link = {"type": 2, "style": 5, "label": "A", "url": "https://x.org"}
        await sdk.send(content="x", components=self.row(link))
        assert "url" in await sdk.not_sent(components=self.row({**link, "custom_id": "c"}))
        assert "url" in await sdk.not_sent(components=self.row({**link, "url": ""}))
        long = {**link, "url": f"https://x.org/{'x' * 500}"}
        assert "url" in await sdk.not_sent(components=self.row(long))

    async def test_other_buttons_have_no_address(self, sdk: Sdk) -> None:
        """Discord, "Component Reference": "Non-link and non-premium buttons must have a custom_id,
        and cannot have a url or a sku_id." """
        button = {"type": 2, "style": 2, "label": "A", "custom_id": "c", "url": "https://x.org"}
        assert "url" in await sdk.not_sent(components=self.row(button))
        assert "custom_id" in await sdk.not_sent(components=self.row({**button, "custom_id": ""}))

    async def test_values_of_a_menu_are_unique(self, sdk: Sdk) -> None:
        """Discord, "Component Reference": "Dev-defined value of the option; max 100
        characters"; that each is used once is observed, not documented."""
        same = [{"label": "A", "value": "a"}, {"label": "B", "value": "a"}]
        assert "options" in await sdk.not_sent(components=self.menu(options=same))
        long = [{"label": "A", "value": "a" * 101}]
        assert "value" in await sdk.not_sent(components=self.menu(options=long))

    async def test_description_of_an_option_is_limited(self, sdk: Sdk) -> None:
        """Discord, "Component Reference": "Additional description of the option; max 100
        characters" """
        option = {"label": "A", "value": "a", "description": "x" * 101}
        assert "description" in await sdk.not_sent(components=self.menu(options=[option]))

    async def test_placeholder_of_a_menu_is_limited(self, sdk: Sdk) -> None:
        """Discord, "Component Reference": "Placeholder text if nothing is selected or default;
        max 150 characters" """
        await sdk.send(content="x", components=self.menu(placeholder="x" * 150))
        assert "placeholder" in await sdk.not_sent(components=self.menu(placeholder="x" * 151))

    async def test_count_of_chosen_values_is_limited(self, sdk: Sdk) -> None:
        """Discord, "Component Reference": "Minimum number of items that must be chosen
        (defaults to 1); min 0 (see note), max 25", "Maximum number of items that can be chosen
        (defaults to 1); max 25" """
        assert "max_values" in await sdk.not_sent(components=self.menu(max_values=26))
        assert "min_values" in await sdk.not_sent(components=self.menu(min_values=-1))


class TestCommands:
    async def set(self, sdk: Sdk, command: dict[str, object]) -> Any:
        path = f"/applications/{sdk.server.discord.bot.application}/commands"
        return await sdk.call("PUT", path, [command])

    async def test_options_of_a_command_are_limited(self, sdk: Sdk) -> None:
        """Discord, "Application Commands": "Parameters for the command, max of 25" """
        options = [{"type": 3, "name": f"n{n}", "description": "d"} for n in range(26)]
        command = {"name": "help", "description": "d", "options": options}
        with pytest.raises(discord.HTTPException, match="options"):
            await self.set(sdk, command)
        await self.set(sdk, {**command, "options": options[:25]})

    async def test_text_of_a_command_is_limited(self, sdk: Sdk) -> None:
        """Discord, "Application Commands": "Slash commands can have a maximum of 8000
        characters for combined name, description, and value properties for each command, its
        options (including subcommands and groups), and choices." """
        choices = [{"name": "n" * 100, "value": "v" * 100} for _ in range(20)]
        option = {"type": 3, "name": "n", "description": "d", "choices": choices}
        command: Json = {"name": "help", "description": "d", "options": [option]}
        await self.set(sdk, command)
        with pytest.raises(discord.HTTPException, match="8000"):
            await self.set(sdk, {**command, "options": [option, option]})

    async def test_choices_of_an_option_are_limited(self, sdk: Sdk) -> None:
        """Discord, "Application Commands": "Choices for the user to pick from, max 25" """
        choices = [{"name": f"n{n}", "value": "v"} for n in range(26)]
        option = {"type": 3, "name": "n", "description": "d", "choices": choices}
        with pytest.raises(discord.HTTPException, match="choices"):
            await self.set(sdk, {"name": "help", "description": "d", "options": [option]})

    async def test_names_of_options_are_checked(self, sdk: Sdk) -> None:
        """Discord, "Application Commands": "CHAT_INPUT command names and command option names must
        match the following regex ^[-_'\\p{L}\\p{N}\\p{sc=Deva}\\p{sc=Thai}]{1,32}$" """
        for name in ("two words", "n" * 33, "Name", ""):
            option = {"type": 3, "name": name, "description": "d"}
            with pytest.raises(discord.HTTPException, match="name"):
                await self.set(sdk, {"name": "help", "description": "d", "options": [option]})

    async def test_required_options_come_first(self, sdk: Sdk) -> None:
        """Discord, "Application Commands": "Required options must be listed before optional
        options" """
        first, second = (
            {"type": 3, "name": name, "description": "d", "required": name == "b"} for name in "ab"
        )
        command: Json = {"name": "help", "description": "d"}
        with pytest.raises(discord.HTTPException, match="options"):
            await self.set(sdk, {**command, "options": [first, second]})
        await self.set(sdk, {**command, "options": [second, first]})


class TestInteractions:
    async def test_only_presses_can_edit_their_message(self, sdk: Sdk) -> None:
        """Discord, "Interactions": "Only valid for component-based interactions", of
        DEFERRED_UPDATE_MESSAGE and UPDATE_MESSAGE"""
        emulated = sdk.server.discord
        number = emulated.command(sdk.direct, "help", ANN)
        path = f"/interactions/{number}/token-{number}/callback"
        for kind in (6, 7):
            assert "type" in (await sdk.refused("POST", path, {"type": kind})).text
        button = {"type": 2, "style": 2, "label": "A", "custom_id": "c"}
        row = {"type": 1, "components": [button]}
        sent = await sdk.send(content="x", components=[row])
        number = emulated.press(sdk.direct, sent["id"], "c", ANN)
        await sdk.call("POST", f"/interactions/{number}/token-{number}/callback", {"type": 6})

    async def test_message_of_a_response_is_checked(self, sdk: Sdk) -> None:
        """Discord, "Interactions": "Message content"; Discord, resources/message: "Message
        contents (up to 2000 characters)" """
        number = sdk.server.discord.command(sdk.direct, "help", ANN)
        path = f"/interactions/{number}/token-{number}/callback"
        long = {"type": 4, "data": {"content": "x" * 2001}}
        assert "content" in (await sdk.refused("POST", path, long)).text
        assert "type" in (await sdk.refused("POST", path, {"type": 99})).text
        await sdk.call("POST", path, {"type": 4, "data": {"content": "x"}})

    async def test_token_is_valid_for_fifteen_minutes(self, sdk: Sdk) -> None:
        """Discord, "Interactions": "Interaction tokens are valid for 15 minutes, meaning you
        can respond to an interaction within that amount of time." The codes of the refusals are
        observed, not documented."""
        emulated = sdk.server.discord
        number = emulated.command(sdk.direct, "help", ANN)
        token = f"token-{number}"
        follow_up = f"/webhooks/{emulated.bot.application}/{token}"
        assert (await sdk.refused("POST", follow_up, {"content": "early"})).code == 10015
        await sdk.call("POST", f"/interactions/{number}/{token}/callback", {"type": 5})
        sdk.clock.skip(14 * 60)
        await sdk.call("POST", follow_up, {"content": "in time"})
        sdk.clock.skip(61)
        assert (await sdk.refused("POST", follow_up, {"content": "late"})).code == 50027
        assert [one.text for one in emulated.posts(sdk.direct)] == ["in time"]
