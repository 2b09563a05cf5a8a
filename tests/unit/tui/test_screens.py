"""Every screen as it stands in a terminal of 80 columns and 24 rows, and in a small one."""

import re
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from companions import Scripted, answered, called, clarified, leave_asked
from drawn import drawn
from hermes.schema.events import Notice, ReasoningDelta
from hermes.tui.companion import Hello

pytestmark = pytest.mark.anyio

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
HELLO = Hello(
    model="openai/gpt-5-mini",
    folder="/srv/garden",
    notes=("/old is gone; the session goes on in /srv/garden.",),
    warnings=("The setting 'x' is unknown.",),
    recap=(
        ("you", "What grows here?"),
        ("hermes", "Beans, mostly."),
        ("you", "And there?"),
        ("", "✓ terminal ls"),
        ("", "(interrupted before it was answered)"),
    ),
    trouble="No model can be reached.",
    hint="Run: hermes model",
)


async def test_the_greeting_with_a_recap(tmp_path: Path) -> None:
    async with drawn(Scripted(hello=HELLO), tmp_path) as screen:
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden
 you: What grows here?
 hermes: Beans, mostly.
 you: And there?
   ✓ terminal ls
   (interrupted before it was answered)

 /old is gone; the session goes on in /srv/garden.
 warning: The setting 'x' is unknown.
 No model can be reached.
 Run: hermes model
────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")


async def test_an_answer_in_markdown(tmp_path: Path) -> None:
    async with drawn(Scripted(answered(MARKDOWN)), tmp_path) as screen:
        await screen.says("plan it")
        await screen.rests()
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


async def test_cards_of_tools(tmp_path: Path) -> None:
    steps = [
        ReasoningDelta("Let me see."),
        *called("terminal", '{"command": "ls -la"}', "a\nb"),
        *called("patch", '{"path": "x.py"}', DIFF, call="c2"),
        *called(
            "terminal", '{"command": "make"}', "boom", call="c3", failed=True,
            text='{"exit_code": 2}',
        ),
        Notice("waiting for the provider"),
        *answered("Done."),
    ]  # fmt: skip
    async with drawn(Scripted(steps), tmp_path) as screen:
        await screen.says("work")
        await screen.rests()
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden

▌ work

 ○ thought  11 characters
 ✓ terminal ls -la  2 lines
 ✓ patch x.py  +1 -1
   @@ -1 +1 @@
   -old line
   +new line
 ✗ terminal make  exit code 2
 waiting for the provider

 Done.

────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · █░░░░░░░ 9% · $0.01 · bubblewrap · F1 help
""")
        await screen.pilot.press("ctrl+o")
        await screen.shows("boom")
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini · /srv/garden

▌ work

 ○ thought  11 characters
 ✓ terminal ls -la  2 lines
 ✓ patch x.py  +1 -1
   @@ -1 +1 @@
   -old line
   +new line
 ✗ terminal make  exit code 2
   $ make
   boom
 waiting for the provider

 Done.

────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · █░░░░░░░ 9% · $0.01 · bubblewrap · F1 help
""")


async def test_a_question_for_leave(tmp_path: Path) -> None:
    companion = Scripted()
    companion.turns = [[leave_asked(), companion.until_decided]]
    async with drawn(companion, tmp_path) as screen:
        await screen.says("build")
        await screen.shows("Allow once")
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
 Enter interrupts and says this; Ctrl+G steers, Ctrl+N queues
 waiting for you 0 s · gpt-5-mini · bubblewrap · F1 help
""")
        companion.interrupt()
        await screen.rests()


async def test_a_question_with_choices_in_a_small_terminal(tmp_path: Path) -> None:
    companion = Scripted()
    companion.turns = [[clarified("red", "blue"), companion.until_decided]]
    async with drawn(companion, tmp_path, size=(40, 12)) as screen:
        await screen.says("paint")
        await screen.shows("blue")
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
        await screen.rests()


async def test_the_list_of_sessions(tmp_path: Path) -> None:
    async with drawn(Scripted(), tmp_path) as screen:
        await screen.pilot.press("ctrl+r")
        await screen.shows("Fix the fence")
        # When that was depends on where one is.
        shown = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "YYYY-MM-DD HH:MM", screen.text)
        assert shown == snapshot("""\
    ╭─ Sessions ───────────────────────────────────────────────────────────╮
    │ Type to search                                                       │
    │                                                                      │
    │ Plan the garden  YYYY-MM-DD HH:MM, 12 messages                       │
    │ Fix the fence  YYYY-MM-DD HH:MM, 3 messages                          │
    │ Enter chooses, Esc goes back.                                        │
    ╰──────────────────────────────────────────────────────────────────────╯





 hermes · openai/gpt-5-mini · /srv/garden
────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")


async def test_the_list_of_models(tmp_path: Path) -> None:
    async with drawn(Scripted(), tmp_path) as screen:
        await screen.pilot.press("f2")
        await screen.shows("nobody listens there")
        assert screen.text == snapshot("""\
    ╭─ Models ─────────────────────────────────────────────────────────────╮
    │ Type to search                                                       │
    │                                                                      │
    │ openai/gpt-5                                                         │
    │ openai/gpt-5-mini                                                    │
    │ ollama  nobody listens there                                         │
    │ Enter chooses, Esc goes back.                                        │
    ╰──────────────────────────────────────────────────────────────────────╯




 hermes · openai/gpt-5-mini · /srv/garden
────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")


async def test_the_keys(tmp_path: Path) -> None:
    async with drawn(Scripted(), tmp_path) as screen:
        await screen.pilot.press("f1")
        await screen.shows("Ctrl+Y")
        assert screen.text == snapshot("""\
    ╭─ Keys ───────────────────────────────────────────────────────────────╮
    │ Enter                         send; while it works: as /busy says    │
    │ Ctrl+J, Shift+Enter, \\ Enter  new line                               │
    │ Ctrl+S, Ctrl+G, Ctrl+N        meanwhile: interrupt, steer, queue     │
    │ Esc, Ctrl+C                   interrupt; Ctrl+C twice leaves         │
    │ Up, Down                      what was typed before; what waits      │
    │ / and @                       commands and files; Tab takes one      │
    │ Tab, Shift+Tab                go to cards, code and questions        │
    │ Enter on a card               open or close it                       │
    │ Ctrl+O                        open or close the last card            │
    │ Ctrl+Y                        copy the last code; on a code block: c │
    │ PgUp, PgDn, Ctrl+End          scroll; back to the end                │
    │ Ctrl+R                        go back to another session             │
    │ F2                            choose a model                         │
    │ Ctrl+T                        dark or light                          │
    │ Ctrl+D, /quit                 leave                                  │
    ╰──────────────────────────────────────────────────────────────────────╯
 hermes · openai/gpt-5-mini · /srv/garden
────────────────────────────────────────────────────────────────────────────────
 Ask anything. / for commands, @ for files
 gpt-5-mini · bubblewrap · F1 help
""")
        await screen.pilot.press("escape")
        await screen.hides("Ctrl+Y")


async def test_suggestions_leave_room_in_a_small_terminal(tmp_path: Path) -> None:
    async with drawn(Scripted(), tmp_path, size=(40, 10)) as screen:
        await screen.types("/re")
        await screen.shows("/resume")
        assert screen.text == snapshot("""\
 hermes · openai/gpt-5-mini ·
 /srv/garden
 /resume
 /retry
────────────────────────────────────────
 /re
 gpt-5-mini · bubblewrap · F1 help
""")
