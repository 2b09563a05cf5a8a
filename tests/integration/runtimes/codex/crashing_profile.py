"""Opens a profile, starts a codex turn and reports it; the test then kills this process."""

import sys
from pathlib import Path

import anyio

from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env, process_env
from hermes.config.home import Home
from hermes.library import collect
from hermes.schema.events import Event, TextDelta
from hermes.schema.messages import Text


async def main(path: Path) -> None:
    home = Home(root=path, path=path)
    async with open_app(home, Env(process_env()), AppOptions(workspace=str(path / "work"))) as app:

        def on_event(event: Event) -> None:
            if isinstance(event, TextDelta):
                sys.stdout.write(f"{app.conversation.session.id}\n")
                sys.stdout.flush()

        await collect(app, [Text("the word is swordfish")], on_event)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
