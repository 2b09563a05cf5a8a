"""Slash commands that only work in a terminal: screen, clipboard and local files."""

from collections.abc import Mapping, Sequence
from functools import partial
from io import StringIO
from pathlib import Path

import msgspec
from anyio import to_thread

from hermes.commands.command import Availability, Command, CommandContext, require_service
from hermes.commands.surface import TerminalAbility
from hermes.kit.files import write_error_hint
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import parse_count
from hermes.schema.errors import UsageError
from hermes.schema.messages import Assistant, Text, text_of
from hermes.schema.sessions import StoredMessage
from hermes.schema.terminal import (
    CommandReply,
    QuitReply,
    ScreenAction,
    ScreenReply,
    SubmitReply,
    TextReply,
)
from hermes.session.recap import recap

_THEMES = ("dark", "light", "auto")


async def _clear(context: CommandContext, args: str) -> CommandReply:
    _require_ability(context, TerminalAbility.CLEAR)
    switched = await context.control.start_session(args)
    return TextReply(f"New session {switched.session.id}.{switched.dropped_note}", clear=True)


def _require_ability(context: CommandContext, ability: TerminalAbility) -> None:
    if ability not in context.caller.abilities:
        raise UsageError("This terminal does not support that.")


async def _copy(context: CommandContext, args: str) -> CommandReply:
    _require_ability(context, TerminalAbility.COPY)
    index = parse_count(args or "1")
    if index is None:
        raise UsageError("/copy takes a number: 1 is the last answer, 2 the one before it.")
    rows = await context.conversation.messages()
    answers = [text_of(row.message) for row in rows if isinstance(row.message, Assistant)]
    answers = [text for text in answers if text.strip()]
    if index > len(answers):
        raise UsageError("There are not that many answers.")
    # The terminal does not report whether it did.
    return TextReply(
        "Sent to the terminal's clipboard.", clipboard=escape_controls(answers[-index])
    )


async def _image(context: CommandContext, args: str) -> CommandReply:
    images = require_service(context.services.images, "Images cannot be sent from here.")
    path, text = _split_path(args)
    image = await images.load(str(_target_path(context.conversation.session.cwd, path)))
    return SubmitReply((Text(text), image) if text else (image,))


def _split_path(args: str) -> tuple[str, str]:
    """Split the path, quoted if it contains spaces, from the text after it."""
    import shlex  # noqa: PLC0415 - rarely needed

    rest = StringIO(args)
    lexer = shlex.shlex(rest, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        path = lexer.get_token()
    except ValueError as error:
        raise UsageError("A quotation mark is not closed.") from error
    if not path:
        raise UsageError("/image takes a path.", hint="For example: /image photo.png what is this?")
    return path, rest.read().strip()


async def _save(suffix: str, context: CommandContext, args: str) -> CommandReply:
    """`suffix` is used if no file is named."""
    session = context.conversation.session
    rows = await context.conversation.messages()
    if not rows:
        raise UsageError("The conversation is empty.")
    path = _target_path(session.cwd, args or f"hermes_{session.id}{suffix}")
    suffix = path.suffix.lower()
    if suffix not in {".md", ".json"}:
        raise UsageError(
            f"/save and /export write .md and .json files, not {path.name}.",
            hint=f"For .jsonl and .html: hermes sessions export {session.id} -o FILE",
        )
    if suffix == ".md":
        failures = await context.conversation.failure_reasons()
        data = _as_markdown(session.title or session.id, rows, failures).encode()
    else:
        body = {"session": session, "messages": [row.message for row in rows]}
        data = msgspec.json.format(msgspec.json.encode(body)) + b"\n"
    try:
        await to_thread.run_sync(_write_new, path, data)
    except FileExistsError as error:
        raise UsageError(f"{path} already exists.", hint="Choose another name.") from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.", hint=write_error_hint(error)
        ) from error
    return TextReply(f"Saved to {path}.")


def _target_path(folder: str, name: str) -> Path:
    return Path(folder) / Path(name).expanduser()


def _write_new(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)


def _as_markdown(title: str, rows: Sequence[StoredMessage], failures: Mapping[str, str]) -> str:
    entries = recap(rows, len(rows), failures=failures)
    sections = [f"## {speaker}\n\n{text}" if speaker else text for speaker, text in entries]
    return "\n\n".join([f"# {title}", *sections]) + "\n"


async def _redraw(context: CommandContext, args: str) -> CommandReply:
    _require_ability(context, TerminalAbility.SCREEN)
    return ScreenReply(ScreenAction.REDRAW)


async def _switch_screen(action: ScreenAction, context: CommandContext, args: str) -> CommandReply:
    _require_ability(context, TerminalAbility.SCREEN)
    if args.lower() not in {"", "on", "off"}:
        raise UsageError("Use on, off or nothing to toggle.")
    return ScreenReply(action, args.lower())


async def _theme(context: CommandContext, args: str) -> CommandReply:
    _require_ability(context, TerminalAbility.SCREEN)
    name = args.lower()
    if name not in {"", *_THEMES}:
        raise UsageError(f"/theme takes one of: {', '.join(_THEMES)}.")
    if name and context.services.settings is not None:
        await context.services.settings.save_theme("default" if name == "auto" else name)
    return ScreenReply(ScreenAction.THEME, name)


async def _paste(context: CommandContext, args: str) -> CommandReply:
    _require_ability(context, TerminalAbility.SCREEN)
    return ScreenReply(ScreenAction.PASTE)


async def _output(context: CommandContext, args: str) -> CommandReply:
    index = parse_count(args or "1")
    if index is None:
        raise UsageError("/output takes a number: 1 is the last long output, 2 the one before it.")
    return ScreenReply(ScreenAction.OUTPUT, str(index))


async def _prompt(context: CommandContext, args: str) -> CommandReply:
    _require_ability(context, TerminalAbility.SCREEN)
    return ScreenReply(ScreenAction.COMPOSE, args)


async def _quit(context: CommandContext, args: str) -> CommandReply:
    if args not in {"", "--delete"}:
        raise UsageError("/quit takes --delete or nothing.")
    conversation = context.conversation
    if args and conversation.started:
        if context.control.activity().running:
            raise UsageError("A turn is still running.", hint="/stop ends it.")
        await conversation.archive.delete([conversation.session.id])
        conversation.start_new()
    return QuitReply()


_terminal_command = partial(Command, availability=Availability.TERMINAL)


def _command_with(ability: TerminalAbility) -> "partial[Command]":
    return partial(
        _terminal_command, is_available=lambda context: ability in context.caller.abilities
    )


_screen_command = _command_with(TerminalAbility.SCREEN)

COMMANDS = (
    _command_with(TerminalAbility.CLEAR)(
        name="clear",
        usage="[title]",
        summary="Clear the screen and start a new session.",
        run=_clear,
    ),
    _command_with(TerminalAbility.COPY)(
        name="copy", usage="[number]", summary="Copy the last answer.", run=_copy
    ),
    _terminal_command(
        name="image",
        usage="<path> [text]",
        summary="Send an image, with optional text.",
        owner_only=True,
        run=_image,
    ),
    _terminal_command(
        name="save",
        usage="[path]",
        summary="Save this session to a .md or .json file.",
        owner_only=True,
        run=partial(_save, ".json"),
    ),
    _terminal_command(
        name="export",
        usage="[path]",
        summary="Write this session to a Markdown file.",
        owner_only=True,
        run=partial(_save, ".md"),
    ),
    _screen_command(name="redraw", summary="Redraw the screen.", run=_redraw),
    _screen_command(
        name="timestamps",
        aliases=("ts",),
        usage="[on|off]",
        summary="Show or hide timestamps until you quit.",
        run=partial(_switch_screen, ScreenAction.TIMESTAMPS),
    ),
    _screen_command(
        name="statusbar",
        aliases=("sb",),
        usage="[on|off]",
        summary="Show or hide the status bar until you quit.",
        run=partial(_switch_screen, ScreenAction.STATUSBAR),
    ),
    _screen_command(
        name="theme",
        aliases=("skin",),
        usage="[dark|light|auto]",
        summary="Switch between dark and light, or choose one for good.",
        owner_only=True,
        run=_theme,
    ),
    _screen_command(
        name="paste", summary="Attach the image in the clipboard.", owner_only=True, run=_paste
    ),
    _terminal_command(
        name="output",
        usage="[number]",
        summary="Show the last long output in full.",
        run=_output,
    ),
    _screen_command(
        name="prompt",
        aliases=("compose",),
        usage="[text]",
        summary="Write a message in your editor.",
        run=_prompt,
    ),
    _terminal_command(
        name="quit",
        aliases=("exit",),
        usage="[--delete]",
        summary="Quit; --delete also deletes this session.",
        run=_quit,
    ),
)
