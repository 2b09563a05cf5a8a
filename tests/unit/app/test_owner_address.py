"""A member's question is forwarded to the owner's home channel."""

from datetime import timedelta
from pathlib import Path

from msgspec import structs

from hermes.gateway.messages import outbox_name, topic_of
from hermes.schema.scope import Address, Scope
from support.app_profile import make_scope, open_profile

HOMES = "platforms:\n  telegram:\n    home_channel: '42'\n  discord:\n    home_channel: '7'\n"


def at(root: Path, channel: str) -> Scope:
    return structs.replace(make_scope(root, channel), address=Address(channel, "1"))


async def test_home_channel_of_the_same_platform_is_preferred(tmp_path: Path) -> None:
    async with open_profile(tmp_path, HOMES) as app:
        assert app.sender.owner_chat(at(tmp_path, "discord")) == Address("discord", "7")
        assert app.sender.owner_chat(at(tmp_path, "telegram")) == Address("telegram", "42")
        assert app.sender.owner_chat(at(tmp_path, "slack")) is not None


async def test_missing_home_channel_gives_no_address(tmp_path: Path) -> None:
    async with open_profile(tmp_path) as app:
        assert app.sender.owner_chat(at(tmp_path, "telegram")) is None


async def test_forwarded_question_is_in_the_outbox_once(tmp_path: Path) -> None:
    home = Address("telegram", "42")
    async with open_profile(tmp_path, HOMES) as app:
        for _ in range(2):
            with app.bus.listen(outbox_name("telegram")) as wakeups:
                await app.sender.forward("ask_1", home, "May I?")
                assert list(wakeups.take()) == [topic_of(home)]
        rows = await app.store.queues.claim(
            outbox_name("telegram"), topic_of(home), "me", timedelta(minutes=1), 10
        )
        assert [row.key for row in rows] == ["ask_1:carried"]
