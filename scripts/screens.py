"""Write screenshots of the terminal UI for the documentation, from a scripted conversation.

python scripts/screens.py            writes docs/screens/*.svg
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hermes.schema.errors import HermesError  # noqa: E402
from support.fake_tui_client import FakeTuiClient, answer_events, approval_asked, tool_events  # noqa: E402
from support.tui_screen import TuiScreen, tui_screen  # noqa: E402

PLACE = ROOT / "docs" / "screens"
SIZE = (92, 26)
DIFF = """\
--- a/greet.py
+++ b/greet.py
@@ -1,2 +1,2 @@
 def greet(name):
-    print("hello" + name)
+    print(f"hello {name}")
"""
ANSWER = """\
The greeting ran its words together. I put a **space** between them and ran the tests:

```python
def greet(name: str) -> None:
    print(f"hello {name}")
```

- `greet.py` changed in one line
- all **12 tests** pass
"""
TESTS = "............\n12 passed in 0.31s"
TODO = "[x] read greet.py\n[>] write a test\n[ ] fix the greeting\n[ ] run all tests"
LONG = "\n".join(f"tests/test_{number:03}.py passed" for number in range(1, 121))
FAILURE = HermesError(
    "openai is overloaded (503)", hint="Try again later, or choose another model: hermes model"
)


def scripted_client() -> FakeTuiClient:
    client = FakeTuiClient()
    client.turns = [
        [
            *tool_events("read_file", '{"path": "greet.py"}', "def greet(name):", call="c1"),
            *tool_events("patch", '{"path": "greet.py"}', DIFF, call="c2"),
            *tool_events("terminal", '{"command": "pytest -q"}', TESTS, call="c3"),
            *answer_events(ANSWER, used=38_000),
        ],
        [
            tool_events("terminal", '{"command": "pytest -q --slow"}', TESTS, call="c4")[0],
            client.wait_until_stopped,
        ],
        [
            approval_asked(subject="git push origin main", reason="you asked for it"),
            client.wait_until_decided,
        ],
    ]
    return client


def keep(screen: TuiScreen, name: str, place: Path) -> None:
    svg = screen.ui.export_screenshot(title="hermes")
    text = "\n".join(line.rstrip() for line in svg.splitlines())
    (place / f"{name}.svg").write_text(text + "\n")


async def take_long_work(folder: Path, place: Path) -> None:
    """The todo list, long output in a card and in the pager, and a failed turn."""
    client = FakeTuiClient()
    client.turns = [
        [
            *tool_events("todo", "{}", TODO, call="c1"),
            tool_events("terminal", '{"command": "pytest -v"}', LONG, call="c2")[0],
            client.wait_until_stopped,
        ],
        [*tool_events("terminal", '{"command": "pytest -v"}', LONG, call="c3")],
    ]
    async with tui_screen(client, folder, size=SIZE, theme="dark") as screen:
        await screen.submit("Fix the greeting, with a test")
        await screen.wait_for("write a test")
        await screen.wait_for("running")
        keep(screen, "todo", place)
        screen.ui.chat.conversation.interrupt()
        await screen.wait_until_idle()
        await screen.submit("Run all tests")
        await screen.wait_until_idle()
        await screen.pilot.press("ctrl+o")
        await screen.wait_for("open again")
        keep(screen, "folded", place)
        await screen.pilot.press("ctrl+o")
        await screen.wait_for("q: back")
        keep(screen, "pager", place)
        await screen.pilot.press("q")
        client.failure = FAILURE
        await screen.submit("And now?")
        await screen.wait_for("/model")
        await screen.wait_until_idle()
        keep(screen, "failure", place)


async def take(theme: str, folder: Path, place: Path) -> None:
    """Write the screenshots to `place`; `folder` is the home of the program."""
    client = scripted_client()
    async with tui_screen(client, folder, size=SIZE, theme=theme) as screen:
        await screen.submit("The greeting looks wrong. Can you fix it?")
        await screen.wait_until_idle()
        keep(screen, f"chat-{theme}", place)
        if theme == "light":
            return
        await screen.pilot.press("f3")
        await screen.wait_for("Fix the fence")
        keep(screen, "sessions", place)
        await screen.pilot.press("escape")
        await screen.submit("Run the slow tests, too")
        await screen.wait_for("running")
        client.accepts_steering = False
        await screen.type_keys("Not those with the network", "ctrl+g")
        await screen.type_keys("and then push", "ctrl+n")
        await screen.wait_for("1 queued")
        keep(screen, "meanwhile", place)
        screen.ui.chat.conversation.interrupt()
        await screen.wait_until_idle()
        screen.ui.chat.prompt.empty()
        await screen.submit("Push it")
        await screen.wait_for("Allow once")
        keep(screen, "approval", place)
        client.interrupt()
        await screen.wait_until_idle()
        await screen.type_keys("/re")
        await screen.wait_for(" /retry")
        keep(screen, "commands", place)


async def take_all(place: Path) -> None:
    """`place` must exist."""
    with TemporaryDirectory() as folder:
        for theme in ("dark", "light"):
            await take(theme, Path(folder), place)
        await take_long_work(Path(folder), place)


if __name__ == "__main__":
    asyncio.run(take_all(PLACE))
