"""Events of a run as printed to a terminal or a file."""

import io
import json
import re
from datetime import UTC, datetime

import pytest
from msgspec import Raw, structs

from hermes.cli.output import Style
from hermes.cli.tool_summary import describe_result
from hermes.cli.verbs.chat.event_printer import EventPrinter
from hermes.cli.verbs.chat.kept_output import KeptOutput
from hermes.cli.verbs.chat.listeners import AnswerListener, JsonListener
from hermes.schema.call_label import call_label
from hermes.schema.errors import UsageError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import (
    Assistant,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    User,
    final_text,
)
from hermes.schema.questions import TERMINAL_ORIGIN
from hermes.schema.tools import Effect
from hermes.testing.clock import FakeClock
from support.cases import cases
from support.fake_tui_client import approval_asked

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
DIFF = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b"
ENDED = RunEnded("run_1", Outcome.DONE)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def call(id: str = "c1", name: str = "terminal", args: bytes = b'{"command": "ls"}') -> ToolCall:  # noqa: A002
    return ToolCall(id, name, Raw(args))


def started(one: ToolCall) -> ToolStarted:
    return ToolStarted(one, Effect.OUTSIDE)


def result(text: str, *, of: str = "c1", failed: bool = False, shown: str = "") -> MessageAdded:
    return MessageAdded(Result("m", of, (Text(text),), failed, shown))


def answer(text: str) -> MessageAdded:
    return MessageAdded(Assistant("m", (Text(text),), Stop.END))


async def printed(
    *events: Event,
    out: io.StringIO | None = None,
    wait: float = 0.0,
    kept: KeptOutput | None = None,
) -> str:
    """The output for the events; every call and every answer takes `wait` seconds."""
    out = out or io.StringIO()
    clock = FakeClock(NOON)
    screen = EventPrinter(out, Style(out, {"TERM": "xterm"}), clock, kept=kept or KeptOutput())
    for event in events:
        screen(event)
        if isinstance(event, ToolStarted | QuestionAsked):
            await clock.advance(wait)
    return out.getvalue()


async def test_streamed_text_ends_with_a_line_break() -> None:
    shown = await printed(TextDelta("\n\nHel"), TextDelta("lo\n\n  there"), answer("…"), ENDED)
    assert shown == "Hello\n\n  there\n"


async def test_call_that_was_not_run_is_shown() -> None:
    wanted = MessageAdded(Assistant("m", (call(),), Stop.TOOLS))
    shown = await printed(wanted, result("Not run: no.", failed=True), answer("Well."), ENDED)
    first, second = shown.splitlines()
    assert first.startswith("● ")
    assert "ls" in first
    assert second == "  ✗ Not run: no."


def on_screen(written: str) -> str:
    """What is left on the screen after rewritten lines, without colors."""
    lines = [line.rpartition("\r\x1b[K")[2] for line in written.split("\n")]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


async def test_answer_is_rendered_at_a_terminal_unless_raw() -> None:
    events = (TextDelta("**bo"), TextDelta("ld**\n\n- one"), answer("**bold**\n\n- one"))
    assert on_screen(await printed(*events, out=Terminal())) == "bold\n\n• one\n"
    assert await printed(*events) == "**bold**\n\n- one\n"


async def test_retries_take_one_line() -> None:
    retries = [Notice(f"overloaded, trying again ({n} of 3)", passing=True) for n in (2, 3)]
    events = (*retries, TextDelta("Done."), answer("Done."))
    assert on_screen(await printed(*events, out=Terminal())) == "Done.\n"
    assert await printed(*events) == "(overloaded, trying again (2 of 3))\nDone.\n"


async def test_reasoning_and_text_are_on_separate_lines() -> None:
    events = (ReasoningDelta("hm"), ReasoningDelta("m"), TextDelta("Yes."), answer("Yes."))
    shown = await printed(*events, out=Terminal())
    assert on_screen(shown) == "hmm\nYes.\n"


async def test_errors_are_on_their_own_line() -> None:
    shown = await printed(
        TextDelta("half an"),
        StreamReset("the connection broke"),
        Notice("waiting 2 s"),
        TextDelta("Whole."),
        answer("Whole."),
        RunEnded("r", Outcome.FAILED, "No more\nmoney."),
    )
    assert shown == (
        "half an\n(the connection broke; starting the answer again)\n(waiting 2 s)\n"
        "Whole.\n✗ No more money.\n"
    )


async def test_call_and_result_are_two_lines() -> None:
    shown = await printed(
        TextDelta("Look:"), answer("Look:"), started(call()), result("{}", shown="a\nb")
    )
    assert shown == "Look:\n● terminal ls\n  ✓ a\n    b\n"


async def test_results_of_parallel_calls_name_their_call() -> None:
    shown = await printed(
        started(call("c1", "read_file", b'{"path":"a"}')),
        started(call("c2", "read_file", b'{"path":"b"}')),
        result("{}", of="c1", shown="a: 1 line"),
        result("gone", of="c2", failed=True),
    )
    assert shown.splitlines()[2:] == ["  ✓ read_file a · a: 1 line", "  ✗ gone"]


async def test_duration_is_shown_only_for_slow_calls() -> None:
    events = started(call()), result("{}", shown="done")
    assert (await printed(*events, wait=0.4)).splitlines()[-1] == "  ✓ done"
    assert (await printed(*events, wait=12.34)).splitlines()[-1] == "  ✓ 12.3 s · done"


async def test_time_of_an_answer_is_not_shown_as_duration() -> None:
    question = approval_asked(subject="rm x", origin=TERMINAL_ORIGIN)
    events = started(call()), question, QuestionAnswered("q1", "once"), result("{}", shown="done")
    shown = await printed(*events, wait=3.0)
    assert shown.splitlines()[-1] == "  ✓ 3.0 s · done"
    assert TERMINAL_ORIGIN not in shown


async def test_terminal_gets_colours_and_temporary_hints() -> None:
    shown = await printed(RunStarted("r", "s"), TextDelta("Hi."), answer("Hi."), out=Terminal())
    assert shown == ("\r\x1b[K\x1b[2mthinking…\x1b[0m\r\x1b[K\x1b[2mHi.\x1b[0m\r\x1b[KHi.\n")
    shown = await printed(started(call()), ToolProgress("c1", "one\ntwo\n"), out=Terminal())
    assert shown.endswith("\r\x1b[K\x1b[2mtwo\x1b[0m")


async def test_file_output_has_no_colours_or_hints() -> None:
    assert await printed(RunStarted("r", "s"), ToolProgress("c1", "x")) == ""


async def test_output_contains_no_foreign_escape_codes() -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\r\u202e"
    shown = await printed(
        TextDelta(nasty),
        ReasoningDelta(nasty),
        Notice(nasty),
        started(call(args=b'{"command": "echo \\u001b[2J"}')),
        ToolProgress("c1", nasty),
        result(nasty, failed=True, shown=f"{nasty}\n{nasty}"),
        RunEnded("r", Outcome.FAILED, nasty),
        out=Terminal(),
    )
    for own in ("\x1b[K", "\x1b[0m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[36m"):
        shown = shown.replace(own, "")
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown


async def test_lines_fit_the_terminal_width() -> None:
    long = call(args=b'{"command": "' + b"x" * 500 + b'"}')
    shown = await printed(started(long), result("{}", shown="日本語" * 100 + "\n" + "y" * 300))
    assert max(map(len, shown.splitlines())) <= 100


def test_call_is_described_by_its_main_argument() -> None:
    assert call_label(call(args=b'{"timeout": 5, "command": "ls\\n -la"}')) == "terminal ls -la"
    assert call_label(call(name="todo", args=b'{"todos": []}')) == "todo"
    assert call_label(call(args=b"[1]")) == "terminal"
    assert call_label(call(args=b"no json")) == "terminal"
    assert call_label(call(name="ask", args=b'{"number": 1, "who": "bob"}')) == "ask bob"


@cases(
    ("text", "failed", "shown", "head", "lines"),
    [
        ("plain words", False, "", "plain words", ()),
        ('{"a":1}', False, "", "", ()),
        ("it broke\nbadly", True, "", "it broke badly", ()),
        ('{"exit_code":2,"error":null}', True, "", "exit code 2", ()),
        ('{"exit_code":1,"exit_code_meaning":"nothing found"}', True, "", "nothing found", ()),
        ('{"error":"late","exit_code":124}', True, "out", "late", ("out",)),
        ("{}", True, "", "failed", ()),
        ("{}", False, "one", "one", ()),
        ("{}", False, DIFF, "+1 -1", ("1 -a", "1 +b")),
    ],
)  # fmt: skip
def test_result_is_summarized(
    text: str, failed: bool, shown: str, head: str, lines: tuple[str, ...]
) -> None:
    gist = describe_result(Result("m", "c", (Text(text),), failed, shown))
    numbered = [line.gutter + line.text for line in gist.diff]
    assert (gist.head, (*gist.lines, *numbered)) == (head, lines)


async def test_folded_output_is_kept_for_the_pager() -> None:
    kept = KeptOutput("/output shows them")
    output = "\n".join(f"line {number}" for number in range(100))
    shown = await printed(started(call()), result("{}", shown=output), kept=kept)
    assert "… 90 lines; /output shows them …" in shown
    await printed(started(call()), result("{}", shown="short"), kept=kept)
    assert kept.output(1) == output
    with pytest.raises(UsageError):
        kept.output(2)


async def test_todo_list_is_printed_when_it_changes() -> None:
    kept, todo = KeptOutput(), call(name="todo", args=b"{}")
    first, second = "[x] one\n[>] two\n[ ] three", "[x] one\n[x] two\n[-] three"
    shown = await printed(started(todo), result("{}", shown=first), kept=kept)
    assert shown == "● todo\n  ✓ 1 of 3 done\n    ✓ one\n    ▸ two\n    ○ three\n"
    assert (kept.todo.is_open, kept.todo.summary) == (True, "Todo · 1 of 3 done · next: two")
    again = await printed(started(todo), result("{}", shown=first), kept=kept)
    assert again == "● todo\n  ✓ 1 of 3 done\n"
    await printed(started(todo), result("{}", shown=second), kept=kept)
    assert not kept.todo.is_open


def test_long_output_shows_first_and_last_lines() -> None:
    output = "\n".join(f"line {number}" for number in range(1000))
    gist = describe_result(Result("m", "c", (Text("{}"),), shown=output))
    assert gist.head == "line 0"
    assert gist.lines[3] == "… 990 lines …"
    assert gist.lines[-1] == "line 999"
    assert len(gist.lines) == 10
    diff = "--- a/x\n+++ b/x\n" + "\n".join("+x" for _ in range(100))
    gist = describe_result(Result("m", "c", (Text("{}"),), shown=diff))
    assert (gist.head, len(gist.diff), gist.diff[-1].text) == ("+100 -0", 41, "… 60 more lines")


async def test_diff_has_line_numbers() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -9,2 +9,2 @@\n one\n-two\n+zwei\n"
    written = await printed(started(call()), result("{}", shown=diff), out=Terminal())
    lines = on_screen(written).splitlines()
    assert lines[-4:-1] == ["     9  one", "    10 -two", "    10 +zwei"]
    assert "\x1b[31m-two\x1b[0m" in written
    assert "\x1b[32m+zwei\x1b[0m" in written


def test_style_depends_on_terminal_and_environment() -> None:
    assert Style(Terminal(), {})("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
    assert Style(Terminal(), {"NO_COLOR": ""})("x", "red") == "\x1b[31mx\x1b[0m"
    assert Style(Terminal(), {})("", "red") == ""
    for style in (
        Style(Terminal(), {"NO_COLOR": "1"}),
        Style(Terminal(), {"TERM": "dumb"}),
        Style(io.StringIO(), {}),
    ):
        assert style("x", "red") == "x"
    assert Style(Terminal(), {"NO_COLOR": "1"}).can_rewrite
    assert not Style(Terminal(), {"TERM": "dumb"}).can_rewrite
    assert Style(io.StringIO(), {}).columns == 100


async def test_answer_listener_prints_notices_only_to_a_terminal() -> None:
    for err, expected in ((Terminal(), "hermes: waiting\n"), (io.StringIO(), "")):
        listener = AnswerListener(err)
        for event in (Notice("waiting"), TextDelta("x"), answer("x"), ENDED):
            listener(event)
        assert err.getvalue() == expected
        assert (final_text(listener.messages), listener.ended) == ("x", ENDED)


async def test_json_listener_prints_one_line_per_event() -> None:
    out = io.StringIO()
    listener = JsonListener(out)
    listener(TextDelta("a\nb\u2028ü"))
    assert out.getvalue() == '{"type":"text_delta","text":"a\\nb\u2028ü"}\n'


async def test_multiline_call_arguments_stay_on_one_json_line() -> None:
    out = io.StringIO()
    JsonListener(out)(started(call(args=b'{\n  "command": "a\\nb"\n}')))
    (line,) = out.getvalue().splitlines()
    assert json.loads(line)["call"]["args"] == {"command": "a\nb"}


async def test_message_from_elsewhere_is_shown_before_the_answer() -> None:
    text = "[IMPORTANT: Background process proc_1 ended (exit code 0).\nOutput: x]"
    news = User("msg_1", (Text(text),))
    typed = structs.replace(news, trust=Trust.OWNER)
    shown = await printed(
        MessageAdded(structs.replace(news, trust=Trust.DATA)), TextDelta("It is done.")
    )
    assert shown == "● Background process proc_1 ended (exit code 0).\nIt is done."
    assert await printed(MessageAdded(typed), TextDelta("It is done.")) == "It is done."
