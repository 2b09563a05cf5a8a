"""Snapshots of the screens at 80x24 and in a small terminal."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

from inline_snapshot import snapshot
from msgspec import Raw, structs

from hermes.schema.events import Notice, ReasoningDelta
from hermes.schema.messages import (
    Assistant,
    Message,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    User,
)
from hermes.schema.sessions import StoredMessage
from hermes.schema.terminal import ErrorInfo, Greeting, RecentHistory
from hermes.tui.widgets.cards import ToolCard
from support.cli_process import TEST_TIMEOUT
from support.fake_tui_client import (
    FakeTuiClient,
    answer_events,
    approval_asked,
    clarify_asked,
    tool_events,
)
from support.tui_screen import tui_screen

MARKDOWN = """\
# A plan
Three files, **two** of them with `code`, and <tags> that stay:

1. first
2. second
   - nested

```python
print("hello")
```

| tool | calls |
|---|---|
| shell | 2 |
"""
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old line\n+new line\n"
HELLO = Greeting(
    model="openai/gpt-5-mini",
    folder="/srv/garden",
    notes=("/old is gone; the session goes on in /srv/garden.",),
    warnings=("The setting 'x' is unknown.",),
    trouble=ErrorInfo("config", "No model can be reached.", "Run: hermes model"),
)


async def test_greeting(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(hello=HELLO), tmp_path) as screen:
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden
 /old is gone; the session goes on in /srv/garden.
 warning: The setting 'x' is unknown.

 No model can be reached.
 Run: hermes model

────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")


def rows(*messages: Message) -> tuple[StoredMessage, ...]:
    """One turn in which each step took two seconds."""
    began = datetime(2026, 3, 1, tzinfo=UTC)
    return tuple(
        StoredMessage(seq, began + timedelta(seconds=2 * seq), "r0", message)
        for seq, message in enumerate(messages, 1)
    )


def past_call(name: str, args: str, id_: str) -> Assistant:
    call = ToolCall(id_, name, Raw(args.encode()))
    return Assistant(f"m{id_}", (Text("I look."), call), Stop.TOOLS)


PAST = RecentHistory(
    rows=rows(
        User("u1", (Text("What grows here?"),)),
        past_call("terminal", '{"command": "ls beds"}', "c1"),
        Result("r1", "c1", (Text("beans\npeas"),), shown="beans\npeas"),
        past_call("patch", '{"path": "x.py"}', "c2"),
        Result("r2", "c2", (Text("ok"),), shown=DIFF),
        User("u2", (Text("go on"),), Trust.PROGRAM),
        Assistant("a1", (Reasoning("Beans!"), Text("**Beans**, mostly.")), Stop.END),
        User("u3", (Text("And there?"),)),
        past_call("terminal", '{"command": "ls there"}', "c3"),
    ),
    cut=frozenset({9}),
    more=12,
)


async def test_failed_turns_of_a_resumed_session(tmp_path: Path) -> None:
    question = rows(User("u1", (Text("One?"),)), User("u2", (Text("Two?"),)))
    past = RecentHistory(rows=question, failed={1: "The key is wrong.", 2: ""})
    async with tui_screen(FakeTuiClient(past=past), tmp_path) as screen:
        await screen.wait_for("Two?")
        lines = [line.strip() for line in screen.lines if line.strip()]
        assert lines[1:5] == [
            "▌ One?",
            "✗ Not answered: The key is wrong.",
            "▌ Two?",
            "✗ Not answered.",
        ]


async def test_resumed_session(tmp_path: Path) -> None:
    """Cards are expanded as before."""
    async with tui_screen(FakeTuiClient(past=PAST), tmp_path, size=(80, 40)) as screen:
        await screen.wait_for("Interrupted before")
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden
 … 12 earlier messages; /history shows them

▌ What grows here?

 I look.

 ✓ terminal ls beds  2 lines · 2.0 s

 I look.

 ✓ patch x.py  +1 -1 · 2.0 s
   1 -old line
   1 +new line
 ○ thought  6 characters

 Beans, mostly.

▌ And there?

 I look.

 ✗ terminal ls there  interrupted
 Interrupted before the answer.
────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")
        first = screen.ui.chat.query(ToolCard).first()
        await screen.pilot.click(first.header)
        await screen.wait_for("   peas")
        assert "   $ ls beds" in screen.text
        await screen.submit("/resume s7")
        await screen.wait_for("Resumed session s7.")
        await screen.wait_until(lambda: len(screen.ui.chat.query(ToolCard)) == 6)


async def test_duration_is_hidden_if_the_user_was_asked(
    tmp_path: Path,
) -> None:
    """It would include the time the user took."""
    answered_at = PAST.rows[2].at - timedelta(milliseconds=500)
    question = structs.replace(PAST, questions_at=(answered_at,))
    async with tui_screen(FakeTuiClient(past=question), tmp_path, size=(80, 40)) as screen:
        await screen.wait_for("Interrupted before")
        assert " ✓ terminal ls beds  2 lines\n" in screen.text
        assert " ✓ patch x.py  +1 -1 · 2.0 s\n" in screen.text


async def test_long_choice_wraps_in_its_column(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    long = " ".join(["word"] * 20)
    companion.turns = [[clarify_asked("red", long), companion.wait_until_decided]]
    async with tui_screen(companion, tmp_path, size=(60, 20)) as screen:
        await screen.submit("paint it")
        await screen.wait_for("Which colour?")
        await screen.wait_for("1  red")
        lines = [line for line in screen.text.splitlines() if "word" in line]
        begin = lines[0].index("word")
        assert lines[0][:begin].rstrip().endswith("2")
        assert len(lines) == 2
        assert lines[1][:begin].strip("▌ ") == ""
        assert lines[1].index("word") == begin
        companion.interrupt()
        await screen.wait_until_idle()


async def test_an_answer_in_markdown(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(answer_events(MARKDOWN)), tmp_path) as screen:
        await screen.submit("plan it")
        await screen.wait_until_idle()
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden

▌ plan it

 A plan

 Three files, two of them with code, and <tags> that stay:

  1. first
  2. second
     • nested

   python                                                               [copy]
   print("hello")

 ┌─────────────────────────────────────┬──────────────────────────────────────┐
 │ tool                                │ calls                                │
 ├─────────────────────────────────────┼──────────────────────────────────────┤
 │ shell                               │ 2                                    │
 └─────────────────────────────────────┴──────────────────────────────────────┘

────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · █░░░░░░░ 9% · $0.01 · bubblewrap · F1 help
""")


async def test_transient_notice_disappears(tmp_path: Path) -> None:
    steps = [
        Notice("waiting"),
        Notice("Loading the model ...", passing=True),
        *answer_events("Done."),
    ]
    async with tui_screen(FakeTuiClient(steps), tmp_path) as screen:
        await screen.submit("work")
        await screen.wait_for("Done.")
        await screen.wait_until_idle()
        assert "waiting" in screen.text
        assert "Loading" not in screen.text


async def test_transient_notice_is_shown_until_the_turn_ends(tmp_path: Path) -> None:
    go_on = Event()
    loading = Notice("Loading the model ...", passing=True)
    steps = [loading, lambda: go_on.wait(TEST_TIMEOUT), *answer_events("Done.")]
    async with tui_screen(FakeTuiClient(steps), tmp_path) as screen:
        await screen.submit("work")
        await screen.wait_for("Loading")
        go_on.set()
        await screen.wait_for("Done.")
        assert "Loading" not in screen.text


async def test_cards_of_tools(tmp_path: Path) -> None:
    steps = [
        ReasoningDelta("Let me see."),
        *tool_events("terminal", '{"command": "ls -la"}', "a\nb"),
        *tool_events("patch", '{"path": "x.py"}', DIFF, call="c2"),
        *tool_events(
            "terminal", '{"command": "make"}', "boom", call="c3", failed=True,
            text='{"exit_code": 2}',
        ),
        Notice("waiting for the provider"),
        *answer_events("Done."),
    ]  # fmt: skip
    async with tui_screen(FakeTuiClient(steps), tmp_path) as screen:
        await screen.submit("work")
        await screen.wait_until_idle()
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden

▌ work

 ○ thought  11 characters
 ✓ terminal ls -la  2 lines
 ✓ patch x.py  +1 -1
   1 -old line
   1 +new line
 ✗ terminal make  exit code 2
 waiting for the provider

 Done.

────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · █░░░░░░░ 9% · $0.01 · bubblewrap · F1 help
""")
        await screen.pilot.press("ctrl+o")
        await screen.wait_for("boom")
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden

▌ work

 ○ thought  11 characters
 ✓ terminal ls -la  2 lines
 ✓ patch x.py  +1 -1
   1 -old line
   1 +new line
 ✗ terminal make  exit code 2
   $ make
   boom
 waiting for the provider

 Done.

────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · █░░░░░░░ 9% · $0.01 · bubblewrap · F1 help
""")


async def test_approval_request(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [[approval_asked(), companion.wait_until_decided]]
    async with tui_screen(companion, tmp_path) as screen:
        await screen.submit("build")
        await screen.wait_for("question above by key")
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden

▌ build

▌ May this command run outside of the sandbox?
▌   rm -rf build
▌ why: to build anew
▌  o  Allow once
▌  s  Allow for this session
▌  a  Allow always
▌  d  Deny

────────────────────────────────────────────────────────────────────────────────
 Answer the question above by key; Esc or Tab to type here
 waiting for you 0 s · gpt-5-mini · bubblewrap · F1 help
""")
        companion.interrupt()
        await screen.wait_until_idle()


async def test_a_question_with_choices_in_a_small_terminal(tmp_path: Path) -> None:
    companion = FakeTuiClient()
    companion.turns = [[clarify_asked("red", "blue"), companion.wait_until_decided]]
    async with tui_screen(companion, tmp_path, size=(40, 12)) as screen:
        await screen.submit("paint")
        await screen.wait_for("blue")
        assert screen.text == snapshot("""\
 /srv/garden                           ▁

▌ paint

▌ Which colour?
▌  1  red
▌  2  blue
▌ or type an answer below

────────────────────────────────────────
 Enter answers the question above
 waiting for you 0 s · gpt-5-mini
""")
        companion.interrupt()
        await screen.wait_until_idle()


async def test_session_picker(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.pilot.press("f3")
        await screen.wait_for("Fix the fence")
        # When that was depends on where one is.
        shown = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "YYYY-MM-DD HH:MM", screen.text)
        assert shown == snapshot("""\
    ╭─ Sessions ───────────────────────────────────────────────────────────╮
    │ Type to search                                                       │
    │                                                                      │
    │ Plan the garden  YYYY-MM-DD HH:MM, 12 messages                       │
    │ Fix the fence  YYYY-MM-DD HH:MM, 3 messages                          │
    │ Enter selects, Esc cancels.                                          │
    ╰──────────────────────────────────────────────────────────────────────╯





 hermes · openai/gpt-5-mini · /srv/garden
────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")


async def test_model_picker(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.pilot.press("f2")
        await screen.wait_for("connection refused")
        assert screen.text == snapshot("""\
    ╭─ Models ─────────────────────────────────────────────────────────────╮
    │ Type to search                                                       │
    │                                                                      │
    │ openai/gpt-5                                                         │
    │ openai/gpt-5-mini  in use                                            │
    │ ollama  connection refused                                           │
    │ Enter selects, Esc cancels.                                          │
    ╰──────────────────────────────────────────────────────────────────────╯




 hermes · openai/gpt-5-mini · /srv/garden
────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")


async def test_key_help(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path) as screen:
        await screen.pilot.press("f1")
        await screen.wait_for("Ctrl+Y")
        assert screen.text == snapshot("""\
    ╭─ Keys ───────────────────────────────────────────────────────────────╮
    │ Enter                         send; during a turn as set by /busy    │
    │ Ctrl+J, Shift+Enter, \\ Enter  new line                               │
    │ Ctrl+S, Ctrl+G, Ctrl+N        during a turn: interrupt, steer,       │
    │ queue                                                                │
    │ Esc, Ctrl+C                   interrupt; Ctrl+C twice quits          │
    │ Up, Down                      input history; queued messages         │
    │ / and @                       commands and files; Tab completes      │
    │ Tab, Shift+Tab                go to cards, code and questions        │
    │ Enter on a card               open or close it                       │
    │ Ctrl+O                        open or close the last card            │
    │ Ctrl+Y                        copy the last code; on a code block:   │
    │ c                                                                    │
    │ PgUp, PgDn, Ctrl+Home/End     scroll; to the start, to the end       │
    │ Ctrl+R                        search the input history               │
    │ Ctrl+V                        paste an image                         │
    │ !command                      run it in your shell; the agent sees   │
    │ the output                                                        ▄▄ │
    │ F3                            resume another session                 │
 her│ F2                            choose a model                         │
────╰──────────────────────────────────────────────────────────────────────╯────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")
        await screen.pilot.press("escape")
        await screen.wait_until_gone("Ctrl+Y")


async def test_suggestions_fit_a_small_terminal(tmp_path: Path) -> None:
    async with tui_screen(FakeTuiClient(), tmp_path, size=(40, 10)) as screen:
        await screen.type_keys("/re")
        await screen.wait_for("/resume")
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini ·
 /srv/garden
 /resume  Go back to a session.
 /retry   Ask again.
────────────────────────────────────────
 /re
 gpt-5-mini · bubblewrap · F1 help
""")
