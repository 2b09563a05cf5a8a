"""Command replies, undone turns and wide code in the transcript."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from hermes.schema.errors import HermesError
from hermes.schema.messages import Text, User, command_parts
from hermes.schema.sessions import StoredMessage
from hermes.schema.terminal import LineReply, RecentHistory, SubmitReply, TextReply
from hermes.tui.widgets.code import CodeText
from hermes.tui.widgets.transcript import UNDONE, Answer, UserMessage
from support.fake_tui_client import FakeTuiClient, answer_events
from support.tui_screen import tui_screen

pytestmark = pytest.mark.slow

WIDE = "x = " + " + ".join(f"number_{place}" for place in range(12))
CODE = f"So:\n\n```python\nif True:\n    {WIDE}\n    short = 1\n```\n"


class Failing(FakeTuiClient):
    def command(self, line: str) -> LineReply:
        if line.startswith("/bad"):
            raise HermesError("That is no good.", hint="Try /help.")
        return super().command(line)


async def test_command_is_shown_above_its_reply(tmp_path: Path) -> None:
    async with tui_screen(Failing(answer_events("Hello.")), tmp_path) as screen:
        await screen.submit("hi")
        await screen.wait_until_idle()
        for line in ("/title", "/bad one", "/worse", "/retry "):
            await screen.submit(line)
            await screen.wait_until_idle()
        assert screen.text == snapshot("""\
                                                                               ▁
▌ hi

 Hello.

 /title
 Did /title.

 /bad one
 ✗ That is no good.
 Try /help.

 /worse
 Did /worse.

 /retry

▌ the same again

 Plain answer.

────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · █░░░░░░░ 9% · $0.02 · bubblewrap · F1 help
""")
        assert "> /title\nDid /title." in screen.ui.chat.plain


class WithWorkspace(FakeTuiClient):
    def command(self, line: str) -> LineReply:
        if line == "/diff":
            return TextReply("--- a/x\n+++ b/x\n@@ -9 +9 @@\n-two\n+zwei", is_diff=True)
        parts = command_parts(line, "Write an AGENTS.md.\n\nLook first.")
        return SubmitReply(parts, notice="Reading the project.")


async def test_diff_command_has_line_numbers(tmp_path: Path) -> None:
    async with tui_screen(WithWorkspace(), tmp_path) as screen:
        await screen.submit("/diff")
        await screen.wait_until_idle()
        lines = [line.strip() for line in screen.text.splitlines()]
        first = lines.index("9 -two")
        assert lines[first - 2 : first + 2] == ["--- a/x", "+++ b/x", "9 -two", "9 +zwei"]


async def test_prompt_of_a_command_is_not_shown(tmp_path: Path) -> None:
    client = WithWorkspace(answer_events("Written."))
    async with tui_screen(client, tmp_path) as screen:
        await screen.submit("/init the tests")
        await screen.wait_until_idle()
        assert screen.text.count("/init the tests") == 1
        assert "Reading the project." in screen.text
        assert "AGENTS.md" not in screen.text
    assert "AGENTS.md" in client.messages[0]


async def test_undone_turn_is_struck_through(tmp_path: Path) -> None:
    companion = Failing(*(answer_events(f"Answer {name}.") for name in "abcd"))
    async with tui_screen(companion, tmp_path, size=(80, 40)) as screen:
        chat = screen.ui.chat
        for line in ("one", "two", "/help", "three", "/bad", "/undo 2"):
            await screen.submit(line)
            await screen.wait_until_idle()
        await screen.wait_for("Did /undo 2.")

        def undone() -> list[str]:
            things = [*chat.query(UserMessage), *chat.query(Answer)]
            return [one.plain for one in things if one.has_class(UNDONE)]

        assert undone() == ["> two", "> three", "Answer b.", "Answer c."]
        struck = [
            "".join(part.text for part in strip if part.style and part.style.strike).strip()
            for strip in screen.ui.screen._compositor.render_strips()
        ]
        assert [line for line in struck if line] == ["two", "Answer b.", "three", "Answer c."]
        left = ["> one", "Answer a.", "> /help", "Did /help.", "> /undo 2", "Did /undo 2."]
        assert [line for line in chat.plain.split("\n") if line in left] == left
        assert "two" not in chat.plain
        await screen.submit("four")
        await screen.wait_until_idle()
        await screen.submit("/undo")
        await screen.wait_until_idle()
        assert undone()[:3] == ["> two", "> three", "> four"]


async def test_replayed_turn_is_undone_whole(tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    words = [("r1", "one"), ("r2", "two"), ("r2", "two, steered")]
    rows = [
        StoredMessage(n, at, run, User(f"u{n}", (Text(text),)))
        for n, (run, text) in enumerate(words)
    ]
    async with tui_screen(FakeTuiClient(past=RecentHistory(rows=tuple(rows))), tmp_path) as screen:
        await screen.submit("/undo")
        await screen.wait_until_idle()
        undone = [one.plain for one in screen.ui.chat.query(UserMessage) if one.has_class(UNDONE)]
        assert undone == ["> two", "> two, steered"]


async def test_undo_does_not_affect_another_session(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        for line in ("one", "/new", "/undo"):
            await screen.submit(line)
            await screen.wait_until_idle()
        assert not screen.ui.chat.query(f".{UNDONE}")


async def test_rollback_strikes_turns_through(tmp_path: Path) -> None:
    companion = Failing(*(answer_events(f"Answer {name}.") for name in "abc"))
    async with tui_screen(companion, tmp_path) as screen:
        for line in ("one", "two", "three", "/rollback 2", "/help"):
            await screen.submit(line)
            await screen.wait_until_idle()
        undone = [one.plain for one in screen.ui.chat.query(UserMessage) if one.has_class(UNDONE)]
        assert undone == ["> two", "> three"]


async def test_wide_code_wraps(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(answer_events(CODE)), tmp_path) as screen:
        await screen.submit("code")
        await screen.wait_until_idle()
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden

▌ code

 So:

   python                                                               [copy]
   if True:
       x = number_0 + number_1 + number_2 + number_3 + number_4 + number_5 +
   ↳ number_6 + number_7 + number_8 + number_9 + number_10 + number_11
       short = 1

────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · █░░░░░░░ 9% · $0.01 · bubblewrap · F1 help
""")
        await screen.pilot.press("ctrl+y")
        await screen.wait_until(lambda: f"    {WIDE}\n" in screen.ui.clipboard)
        assert "↳" not in screen.ui.clipboard
        screen.ui.chat.query_one(CodeText).text_select_all()
        chosen = screen.ui.chat.get_selected_text()
        assert chosen is not None
        assert f"    {WIDE}\n" in chosen


@pytest.mark.slow
@pytest.mark.parametrize("line", ["x" * 300, "広" * 100, "\t" * 12 + "end"])
async def test_wide_line_is_complete(tmp_path: Path, line: str) -> None:
    async with tui_screen(
        FakeTuiClient(answer_events(f"```\n{line}\n```\n")), tmp_path, size=(40, 30)
    ) as screen:
        await screen.submit("code")
        await screen.wait_until_idle()
        assert screen.text.count(line[-1]) >= line.count(line[-1])
