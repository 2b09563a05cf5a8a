"""From the flags of a chat to what it starts with: session, model, folder, limits."""

import os
from argparse import Namespace
from pathlib import Path

from hermes.cli.verbs.chat import as_text
from hermes.config.home import Home
from hermes.local.partner import Start
from hermes.schema.errors import UsageError


def start_of(args: Namespace) -> Start:
    """Raises `UsageError` when there is no such folder."""
    toolsets = (name.strip() for name in as_text(args.toolsets or "").split(","))
    return Start(
        cwd=_workspace(args),
        moved=bool(args.cwd),
        resume=as_text(args.resume or args.go_on or ""),
        latest=args.go_on is not None,
        model=as_text(args.model or ""),
        provider=as_text(args.provider or ""),
        source=args.source,
        toolsets=None if args.toolsets is None else tuple(filter(None, toolsets)),
        max_steps=args.max_turns,
        yolo=args.yolo,
    )


def gateway_lives(home: Home) -> bool:
    """Whether a process is the gateway of this home, or is to be: one that is restarted, too."""
    from hermes.daemon.lock import who_holds
    from hermes.daemon.state import read_state

    if who_holds(home) is not None:
        return True
    state = read_state(home.gateway_state)
    return state is not None and state.restart_requested


def picture_paths(names: list[str]) -> tuple[bytes, ...]:
    """From the root on: whoever opens them may stand in another folder."""
    return tuple(os.fsencode(os.path.abspath(_expanded(name))) for name in names)  # noqa: PTH100 - drops ".."


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def _workspace(args: Namespace) -> str:
    """The folder the agent works in. Raises `UsageError` when there is none."""
    try:
        path = Path(args.cwd).expanduser() if args.cwd else Path.cwd()
    except (FileNotFoundError, RuntimeError) as error:
        raise UsageError(
            "The current folder does not exist any more.", hint="Change to another one: cd"
        ) from error
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder.", hint="Give --cwd one that exists.")
    return str(path.resolve())
