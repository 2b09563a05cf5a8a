"""Write screenshots of the terminal UI for the documentation, from a scripted conversation.

python scripts/screens.py            writes docs/screens/*.svg
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

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


async def take(theme: str, folder: Path, place: Path) -> None:
    """Write the screenshots to `place`; `folder` is the home of the program."""
    client = scripted_client()

    def keep(screen: TuiScreen, name: str) -> None:
        svg = screen.ui.export_screenshot(title="hermes")
        text = "\n".join(line.rstrip() for line in svg.splitlines())
        (place / f"{name}.svg").write_text(text + "\n")

    async with tui_screen(client, folder, size=SIZE, theme=theme) as screen:
        await screen.submit("The greeting looks wrong. Can you fix it?")
        await screen.wait_until_idle()
        keep(screen, f"chat-{theme}")
        if theme == "light":
            return
        await screen.pilot.press("f3")
        await screen.wait_for("Fix the fence")
        keep(screen, "sessions")
        await screen.pilot.press("escape")
        await screen.submit("Run the slow tests, too")
        await screen.wait_for("running")
        client.accepts_steering = False
        await screen.type_keys("Not those with the network", "ctrl+g")
        await screen.type_keys("and then push", "ctrl+n")
        await screen.wait_for("1 queued")
        keep(screen, "meanwhile")
        screen.ui.chat.conversation.interrupt()
        await screen.wait_until_idle()
        screen.ui.chat.prompt.empty()
        await screen.submit("Push it")
        await screen.wait_for("Allow once")
        keep(screen, "approval")
        client.interrupt()
        await screen.wait_until_idle()
        await screen.type_keys("/re")
        await screen.wait_for(" /retry")
        keep(screen, "commands")


async def take_all(place: Path) -> None:
    """`place` must exist."""
    with TemporaryDirectory() as folder:
        for theme in ("dark", "light"):
            await take(theme, Path(folder), place)


if __name__ == "__main__":
    asyncio.run(take_all(PLACE))
