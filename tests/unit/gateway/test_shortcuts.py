"""Names and words of people's own that mean a command of ours."""

from pathlib import Path

import pytest

from hermes.config.schema import Config
from hermes.config.sections.execution import QuickCommand
from hermes.gateway.command_runner import Shortcuts, shortcuts_from
from hermes.gateway.intake import NO_SHELL
from support.gateway import gateway_harness

pytestmark = pytest.mark.anyio

CONFIG = Config(
    quick_commands={
        "Name": QuickCommand(type="alias", target="/title"),
        "trip": QuickCommand(type="alias", command="title Trip"),
        "stop": QuickCommand(type="alias", target="/new"),
        "empty": QuickCommand(type="alias"),
        "disk": QuickCommand(command="df -h"),
    },
    reset_triggers=("/new", "Start over", " "),
)
TAKEN = ("new", "stop", "title")
OURS = shortcuts_from(CONFIG, TAKEN)


def test_what_the_settings_come_to() -> None:
    assert shortcuts_from(CONFIG, TAKEN) == Shortcuts(
        names={"/name": "/title", "/trip": "/title Trip"},
        barred=frozenset({"/disk"}),
        anew=frozenset({"start over"}),
    )
    assert OURS.meant("/name@us My  plan") == "/title My  plan"
    assert OURS.meant("start OVER ") == "/new"
    for text in ("start over now", "name it", "/names", "/disk", ""):
        assert OURS.meant(text) == text


async def test_in_a_chat(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        one.gateway.intake.set_shortcuts(OURS)
        await one.channel.say("hello")
        await one.sees("re: hello")
        await one.calm()
        await one.channel.say("/trip to Rome")
        called = "Session title: “Trip to Rome”."
        await one.sees("re: hello", called)
        await one.channel.say("/disk")
        refused = f"{NO_SHELL} Ask for it in words: then it runs behind the wall."
        await one.sees("re: hello", called, refused)
        await one.channel.say("Start over")
        await one.calm()
        await one.channel.say("again")
        await one.calm()
        assert await one.texts() == ["again", "re: again"]
