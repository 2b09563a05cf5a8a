"""Write docs/demo.svg: a conversation in the terminal UI as a moving picture."""

import asyncio
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore

from screens import ANSWER, DIFF, PLACE, SIZE, TESTS

from hermes.testing.clock import FakeClock
from hermes.tui.widgets.question import KEY_PAUSE
from support.fake_tui_client import FakeTuiClient, answer_events, approval_asked, tool_events
from support.tui_screen import TuiScreen, tui_screen

FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
TERMINAL = re.compile(r"terminal-\d+")
BODY = re.compile(r"<style>(.*?)</style>(.*)</svg>", re.DOTALL)
TIMEOUT = 30.0


class Gate:
    """Holds the scripted client until a picture of the screen is taken."""

    def __init__(self) -> None:
        self._opened = Semaphore(0)

    def __call__(self) -> None:
        if not self._opened.acquire(timeout=TIMEOUT):
            raise TimeoutError("no picture was taken")

    def open(self) -> None:
        self._opened.release()


def scripted_client(gate: Gate) -> FakeTuiClient:
    client = FakeTuiClient()
    answer = answer_events(ANSWER, used=38_000)
    push = tool_events("terminal", '{"command": "git push origin main"}', "main -> main", call="c4")
    tests = tool_events("terminal", '{"command": "pytest -q"}', TESTS, call="c3")
    client.turns = [
        [
            *tool_events("read_file", '{"path": "greet.py"}', "def greet(name):", call="c1"),
            gate,
            *tool_events("patch", '{"path": "greet.py"}', DIFF, call="c2"),
            gate,
            tests[0],
            gate,
            tests[1],
            *answer[: len(answer) // 3],
            gate,
            *answer[len(answer) // 3 :],
        ],
        [
            approval_asked(subject="git push origin main", reason="you asked for it"),
            client.wait_until_decided,
            *push,
            *answer_events("Pushed to `main`.", used=39_000),
        ],
    ]
    return client


async def frames(folder: Path) -> list[tuple[float, str]]:
    """Pictures with the seconds each one is shown."""
    gate, clock = Gate(), FakeClock()
    taken: list[tuple[float, str]] = []

    def keep(screen: TuiScreen, seconds: float) -> None:
        taken.append((seconds, screen.ui.export_screenshot(title="hermes")))

    async with tui_screen(
        scripted_client(gate), folder, size=SIZE, theme="dark", clock=clock
    ) as screen:
        await screen.type_keys("The greeting looks")
        keep(screen, 0.8)
        await screen.type_keys(" wrong. Can you fix it?")
        keep(screen, 1.2)
        await screen.type_keys("", "enter")
        for words, seconds in (("read_file", 1.0), ("patch", 1.8), ("pytest", 1.2)):
            await screen.wait_for(words)
            keep(screen, seconds)
            gate.open()
        await screen.wait_for("The greeting ran")
        keep(screen, 0.8)
        gate.open()
        await screen.wait_until_idle()
        keep(screen, 3.0)
        await screen.type_keys("Push it")
        keep(screen, 0.8)
        await screen.type_keys("", "enter")
        await screen.wait_for("Allow once")
        keep(screen, 2.5)
        await clock.advance(KEY_PAUSE)  # keys right after a question are not an answer
        await screen.pilot.press("o")
        await screen.wait_for("Pushed")
        await screen.wait_until_idle()
        keep(screen, 3.0)
    return taken


def animated(pictures: list[tuple[float, str]]) -> str:
    """One SVG that shows the pictures in turn, without a script."""
    total = sum(seconds for seconds, _ in pictures)
    styles: list[str] = []
    groups: list[str] = []
    begin = 0.0
    for number, (seconds, svg) in enumerate(pictures):
        style, body = BODY.findall(TERMINAL.sub(f"t{number}", FONT_FACES.sub("", svg)))[0]
        start, end = 100 * begin / total, 100 * (begin + seconds) / total
        begin += seconds
        styles.append(style)
        styles.append(
            f"@keyframes f{number} {{ 0%, {start:.2f}% {{ visibility: hidden }} "
            f"{start + 0.01:.2f}%, {end:.2f}% {{ visibility: visible }} "
            f"{min(end + 0.01, 100):.2f}%, 100% {{ visibility: hidden }} }}\n"
            f".f{number} {{ animation: f{number} {total:.1f}s step-end infinite }}"
        )
        groups.append(f'<g class="f{number}">{body}</g>')
    size = re.findall(r'viewBox="[^"]+"', pictures[0][1])[0]
    text = "\n".join(
        (
            f'<svg class="rich-terminal" {size} xmlns="http://www.w3.org/2000/svg">',
            f"<style>{''.join(styles)}</style>",
            *groups,
            "</svg>",
        )
    )
    return "\n".join(line.strip() for line in text.splitlines() if line.strip()) + "\n"


async def main() -> None:
    with TemporaryDirectory() as folder:
        pictures = await frames(Path(folder))
    path = PLACE.parent / "demo.svg"
    path.write_text(animated(pictures))
    sys.stdout.write(f"{path}: {len(pictures)} pictures, {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    asyncio.run(main())
