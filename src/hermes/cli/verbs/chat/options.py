"""The options of a chat, from flags and settings: session, model, limits and display."""

import os
from argparse import Namespace
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.cli.verbs.chat import decode_argument
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.ipc.client import ConversationOptions
from hermes.schema.errors import ConfigError, UsageError
from hermes.tui.options import DEFAULT_OPTIONS, DisplayOptions


def conversation_options(args: Namespace) -> ConversationOptions:
    """Raises `UsageError` if the working directory does not exist."""
    toolsets = (name.strip() for name in decode_argument(args.toolsets or "").split(","))
    return ConversationOptions(
        cwd=_workspace(args),
        moved=bool(args.cwd),
        resume=decode_argument(args.resume or args.continue_session or ""),
        latest=args.continue_session is not None,
        model=decode_argument(args.model or ""),
        provider=decode_argument(args.provider or ""),
        source=args.source,
        toolsets=None if args.toolsets is None else tuple(filter(None, toolsets)),
        max_steps=args.max_turns,
        yolo=args.yolo,
    )


def has_gateway(home: Home) -> bool:
    """Whether the home's gateway is running or restarting."""
    from hermes.app.service.lock import running_gateway
    from hermes.app.service.status import read_state

    if running_gateway(home) is not None:
        return True
    state = read_state(home.gateway_state)
    return state is not None and state.restart_requested


def image_paths(names: list[str]) -> tuple[bytes, ...]:
    """Absolute paths: the process that opens them may have another working directory."""
    return tuple(os.fsencode(os.path.abspath(_expand_user(name))) for name in names)  # noqa: PTH100 - drops ".."


def _expand_user(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def _workspace(args: Namespace) -> str:
    """The agent's working directory. Raises `UsageError` if it does not exist."""
    try:
        path = Path(args.cwd).expanduser() if args.cwd else Path.cwd()
    except (FileNotFoundError, RuntimeError) as error:
        raise UsageError(
            "The working directory no longer exists.", hint="Change to another one: cd"
        ) from error
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder.", hint="Pass an existing folder to --cwd.")
    return str(path.resolve())


def load_display_options(context: CliContext) -> DisplayOptions:
    """The display options; defaults if the settings are invalid, which is reported elsewhere."""
    try:
        return display_options_of(context.load_config().config)
    except ConfigError:
        return DEFAULT_OPTIONS


def display_options_of(config: Config) -> DisplayOptions:
    display = config.display
    return DisplayOptions(
        reasoning=display.show_reasoning,
        reasoning_open=display.reasoning_full,
        raw=display.final_response_markdown == "raw",
        diffs=display.inline_diffs,
        cost=display.show_cost,
        times=display.timestamps,
        bell=display.bell_on_complete,
        compact=display.compact,
        preview_length=display.tool_preview_length,
        paste_lines=config.paste_collapse_threshold,
        paste_size=config.paste_collapse_char_threshold,
    )
