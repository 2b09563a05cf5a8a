"""Command aliases and reset triggers from the settings."""

from pathlib import Path

from hermes.config.schema import Config
from hermes.config.sections.execution import QuickCommand
from hermes.gateway.command_runner import Shortcuts, shortcuts_from
from hermes.gateway.intake import NO_SHELL
from support.gateway import gateway_harness

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
SHORTCUTS = shortcuts_from(CONFIG, TAKEN)


def test_shortcuts_from_settings() -> None:
    assert shortcuts_from(CONFIG, TAKEN) == Shortcuts(  # noqa: S604 - not a call of a shell
        aliases={"/name": "/title", "/trip": "/title Trip"},
        shell=frozenset({"/disk"}),
        new_session=frozenset({"start over"}),
    )
    assert SHORTCUTS.expand("/name@us My  plan") == "/title My  plan"
    assert SHORTCUTS.expand("start OVER ") == "/new"
    for text in ("start over now", "name it", "/names", "/disk", ""):
        assert SHORTCUTS.expand(text) == text


async def test_shortcuts_in_a_chat(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, shortcuts=SHORTCUTS) as harness:
        await harness.channel.say("hello")
        await harness.wait_for_posts("re: hello")
        await harness.wait_until_idle()
        await harness.channel.say("/trip to Rome")
        called = "Session title: “Trip to Rome”."
        await harness.wait_for_posts("re: hello", called)
        await harness.channel.say("/disk")
        refused = f"{NO_SHELL} Ask for it in words; it then runs in the sandbox."
        await harness.wait_for_posts("re: hello", called, refused)
        await harness.channel.say("Start over")
        await harness.wait_until_idle()
        await harness.channel.say("again")
        await harness.wait_until_idle()
        assert await harness.texts() == ["again", "re: again"]
