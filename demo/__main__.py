"""`make demo`: run the tasks one after the other, each in its own folder, and count successes."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import anyio
from msgspec import Struct

from demo.tasks import ENOUGH, TASKS, Task
from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.models.embedded.download import DownloadProgress, format_size
from hermes.models.embedded.install import fetch_model
from hermes.models.embedded.weights import FOLDER_NAME, ModelFolder, find_weights
from hermes.sandbox.program_launcher import program_launcher
from hermes.sandbox.spawner import Spawner
from hermes.schema.events import Event, MessageAdded, RunEnded, TextDelta
from hermes.schema.messages import Assistant, Message, Text, final_text
from hermes.session.conversation import SessionOptions

PATIENCE = 400.0
"""Timeout of one task in seconds, long enough for a busy machine."""
USUAL = "qwen2.5-coder-1.5b"
FOLLOW_UP = 3.0
"""Maximum seconds to the first word of a follow-up turn, on two otherwise idle cores."""


class Done(Struct, frozen=True):
    well: bool
    seconds: float
    first: float | None
    steps: list[str]
    words: str


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Talk:
    """A separate session in a folder."""

    def __init__(self, app: App, folder: Path) -> None:
        self._talk = app.new_conversation(SessionOptions(source="cli", cwd=str(folder)))

    async def ask(self, questions: str) -> Done:
        messages: list[Message] = []
        first: list[float] = []
        why: list[str] = []
        begun = time.monotonic()

        async def record(event: Event) -> None:
            match event:
                case MessageAdded(message=message):
                    messages.append(message)
                case TextDelta() if not first:
                    first.append(time.monotonic() - begun)
                case RunEnded(reason=reason) if reason:
                    why.append(reason)
                case _:
                    pass

        with anyio.move_on_after(PATIENCE):
            await self._talk.submit([Text(questions)], record)
        calls = [
            f"{call.name} {bytes(call.args).decode()}"
            for message in messages
            if isinstance(message, Assistant)
            for call in message.calls
        ]
        words = final_text(messages)
        spent = time.monotonic() - begun
        return Done(not why, spent, first[0] if first else None, [*calls, *why], words)


async def attempt_all(model: str, only: list[int], *, verbose: bool) -> int:
    weights = find_weights(model)
    with tempfile.TemporaryDirectory(prefix="hermes-demo-") as temporary:
        root = Path(temporary)
        env = Env(process_env()).overlaid({"HERMES_HOME": str(root / "home")})
        place = ModelFolder(Path(sys.prefix) / FOLDER_NAME)
        say(f"{weights.title}, {format_size(weights.size)}, {weights.licence}: {place.folder}")
        with Spawner() as spawner:
            await fetch_model(weights, place, env, program_launcher(spawner), _progress)
        (root / "home").mkdir()
        (root / "home" / FOLDER_NAME).symlink_to(place.folder)
        home = resolve_home(env)
        choices = AppOptions(workspace=str(root), model=model, provider="embedded")
        done = 0
        async with open_app(home, env, choices) as app:
            for number, task in enumerate(TASKS, 1):
                if only and number not in only:
                    continue
                folder = root / f"task-{number}"
                folder.mkdir()
                result = await _one(app, task, folder)
                done += result.well
                mark = "done" if result.well else "FAILED"
                say(f"{number:2}  {task.name:28} {mark:7} {result.seconds:6.1f} s")
                if verbose or not result.well:
                    for line in (*result.steps, f"= {result.words}"):
                        say(f"      {line[:300]!r}")
            await _follow_up(app, root)
        say(f"{done} of {len(only) or len(TASKS)} done; {ENOUGH} of {len(TASKS)} are required.")
        return 0 if done >= min(ENOUGH, len(only) or ENOUGH) else 1


async def _one(app: App, task: Task, folder: Path) -> Done:
    for name, text in task.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    result = await Talk(app, folder).ask(task.prompt)
    return Done(
        task.judge(folder, result.words),
        result.seconds,
        result.first,
        result.steps,
        result.words,
    )


async def _follow_up(app: App, root: Path) -> None:
    folder = root / "follow-up"
    folder.mkdir()
    talk = Talk(app, folder)
    begun = await talk.ask("Hello! My name is Ada.")
    again = await talk.ask("What is my name?")
    for name, one in (("first turn of a session", begun), ("follow-up turn", again)):
        first = "no words" if one.first is None else f"{one.first:.1f} s to the first word"
        say(f"    {name}: {first}, {one.seconds:.1f} s in all: {one.words[:80]!r}")
    soon = again.first is not None and again.first <= FOLLOW_UP
    say(f"    follow-up turn within {FOLLOW_UP:g} s: {'yes' if soon else 'NO'}")


def _progress(progress: DownloadProgress) -> None:
    part = progress.done * 100 // max(progress.total, 1)
    sys.stderr.write(f"\r{progress.stage} {part:3}% {progress.source}   ")
    if progress.done == progress.total:
        sys.stderr.write("\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--model", default=USUAL)
    parser.add_argument("--only", default="", help="task numbers, such as 1,5")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    only = [int(number) for number in args.only.split(",") if number]
    return anyio.run(lambda: attempt_all(args.model, only, verbose=args.verbose))


if __name__ == "__main__":
    sys.exit(main())
