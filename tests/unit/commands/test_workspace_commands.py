"""`/diff`, `/init`, `/theme`, `/paste`, `/export` and `/cost`."""

from pathlib import Path

import pytest

from hermes.schema.errors import UsageError
from hermes.schema.messages import Text, User, display_parts, typed_text
from hermes.schema.terminal import ScreenAction, ScreenReply, SubmitReply, TextReply
from hermes.testing.scripted_model import answer_script
from support.slash_commands import command_harness


async def test_diff_is_marked_as_one(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.run("/diff") == TextReply("Nothing has changed since the last commit.")
        reply = await harness.run("/diff a.py")
        assert isinstance(reply, TextReply)
        assert reply.is_diff
        assert reply.text.startswith("diff --git a/a.py")


async def test_init_submits_a_prompt_with_the_arguments(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        reply = await harness.run("/init the tests")
        assert isinstance(reply, SubmitReply)
        typed, prompt = reply.parts
        assert typed == Text("/init the tests")
        assert isinstance(prompt, Text)
        assert "Pay attention to this: the tests" in prompt.text
        assert "{what}" not in prompt.text
        assert "AGENTS.md" in reply.notice
        assert typed_text(User("m", reply.parts)) == "/init the tests"
        assert display_parts(User("m", reply.parts)) == (typed,)


async def test_theme_is_shown_and_saved(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.run("/theme") == ScreenReply(ScreenAction.THEME)
        assert harness.fake_services.saved == []
        assert await harness.run("/skin Light") == ScreenReply(ScreenAction.THEME, "light")
        assert await harness.run("/theme auto") == ScreenReply(ScreenAction.THEME, "auto")
        assert harness.fake_services.saved == ["light", "default"]
        with pytest.raises(UsageError, match="dark, light, auto"):
            await harness.run("/theme blue")
        assert await harness.run("/paste") == ScreenReply(ScreenAction.PASTE)


async def test_export_writes_markdown_and_cost_is_usage(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Four.")) as harness:
        await harness.conversation.submit("How many?")
        text = await harness.run_text("/export")
        session = harness.conversation.conversation.session
        path = Path(session.cwd) / f"hermes_{session.id}.md"
        assert text == f"Saved to {path}."
        assert "Four." in path.read_text()
        assert await harness.run_text("/cost") == await harness.run_text("/usage")
