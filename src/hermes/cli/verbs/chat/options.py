"""From the flags of a chat to what it starts with: session, model, folder, limits."""

import os
from argparse import Namespace
from pathlib import Path

from hermes.cli.verbs.chat import decode_argument
from hermes.config.home import Home
from hermes.ipc.client import ConversationOptions
from hermes.schema.errors import UsageError


def conversation_options(args: Namespace) -> ConversationOptions:
    """Raises `UsageError` when there is no such folder."""
    toolsets = (name.strip() for name in decode_argument(args.toolsets or "").split(","))
    return ConversationOptions(
        cwd=_workspace(args),
        moved=bool(args.cwd),
        resume=decode_argument(args.resume or args.go_on or ""),
        latest=args.go_on is not None,
        model=decode_argument(args.model or ""),
        provider=decode_argument(args.provider or ""),
        source=args.source,
        toolsets=None if args.toolsets is None else tuple(filter(None, toolsets)),
        max_steps=args.max_turns,
        yolo=args.yolo,
    )


def has_gateway(home: Home) -> bool:
    """Whether a process is the gateway of this home, or is to be: one that is restarted, too."""
    from hermes.app.service.lock import running_gateway
    from hermes.app.service.status import read_state

    if running_gateway(home) is not None:
        return True
    state = read_state(home.gateway_state)
    return state is not None and state.restart_requested


def image_paths(names: list[str]) -> tuple[bytes, ...]:
    """From the root on: whoever opens them may stand in another folder."""
    return tuple(os.fsencode(os.path.abspath(_expand_user(name))) for name in names)  # noqa: PTH100 - drops ".."


def _expand_user(name: str) -> Path:
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
