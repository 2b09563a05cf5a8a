"""Commands that need somebody's own machine: its files, its screen, its clipboard."""

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import msgspec
from anyio import to_thread

from hermes.commands.command import (
    Availability,
    Command,
    CommandContext,
    CommandReply,
    QuitReply,
    ScreenReply,
    SubmitReply,
    TextReply,
)
from hermes.commands.surface import ScreenAction, TerminalAbility
from hermes.kit.files import write_error_hint
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import parse_count
from hermes.schema.errors import UsageError
from hermes.schema.messages import Assistant, Text, text_of
from hermes.schema.sessions import StoredMessage
from hermes.session.recap import recap

_PROGRESS_LEVELS = ("off", "new", "all", "verbose")


async def _clear(context: CommandContext, words: str) -> CommandReply:
    _require_ability(context, TerminalAbility.CLEAR)
    begun = await context.work.begin(words)
    return TextReply(f"New session {begun.session.id}.{begun.aside}", clear=True)


def _require_ability(context: CommandContext, ability: TerminalAbility) -> None:
    if ability not in context.seat.abilities:
        raise UsageError("This terminal cannot do that.")


async def _copy(context: CommandContext, words: str) -> CommandReply:
    _require_ability(context, TerminalAbility.COPY)
    place = parse_count(words or "1")
    if place is None:
        raise UsageError("/copy takes a number: 1 is the last answer, 2 the one before it.")
    rows = await context.conversation.messages()
    answers = [text_of(row.message) for row in rows if isinstance(row.message, Assistant)]
    answers = [text for text in answers if text.strip()]
    if place > len(answers):
        raise UsageError("There is no such answer to copy.")
    # Whether it does is not told to anybody.
    return TextReply("Asked the terminal to copy it.", clip=escape_controls(answers[-place]))


async def _image(context: CommandContext, words: str) -> CommandReply:
    pictures = context.services.pictures
    if pictures is None:
        raise UsageError("Pictures cannot be sent from here.")
    path, said = _split_path(words)
    picture = await pictures.load(str(_target_path(context.conversation.session.cwd, path)))
    return SubmitReply((Text(said), picture) if said else (picture,))


def _split_path(words: str) -> tuple[str, str]:
    """A path, in quotes when it has spaces, and what is said about it."""
    import shlex  # noqa: PLC0415 - seldom needed

    rest = StringIO(words)
    lexer = shlex.shlex(rest, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        path = lexer.get_token()
    except ValueError as error:
        raise UsageError("A quote is not closed.") from error
    if not path:
        raise UsageError("/image takes a path.", hint="For example: /image photo.png what is this?")
    return path, rest.read().strip()


async def _save(context: CommandContext, words: str) -> CommandReply:
    session = context.conversation.session
    rows = await context.conversation.messages()
    if not rows:
        raise UsageError("Nothing has been said yet.")
    path = _target_path(session.cwd, words or f"hermes_{session.id}.json")
    if path.suffix.lower() not in {".md", ".json"}:
        raise UsageError(
            f"/save writes .md and .json, and {path.name} is neither.",
            hint=f"For .jsonl and .html: hermes sessions export {session.id} -o FILE",
        )
    if path.suffix.lower() == ".md":
        ends = await context.conversation.ends()
        data = _as_markdown(session.title or session.id, rows, ends).encode()
    else:
        body = {"session": session, "messages": [row.message for row in rows]}
        data = msgspec.json.format(msgspec.json.encode(body)) + b"\n"
    try:
        await to_thread.run_sync(_write_new, path, data)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already.", hint="Choose another name.") from error
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


def _as_markdown(title: str, rows: Sequence[StoredMessage], ends: Mapping[str, str]) -> str:
    told = recap(rows, len(rows), ends=ends)
    spoken = [f"## {who}\n\n{said}" if who else said for who, said in told]
    return "\n\n".join([f"# {title}", *spoken]) + "\n"


async def _verbose(context: CommandContext, words: str) -> CommandReply:
    _require_ability(context, TerminalAbility.PROGRESS)
    settings = context.services.settings
    level = words.lower() or _next_level(settings.progress() if settings is not None else "")
    if level not in _PROGRESS_LEVELS:
        raise UsageError("/verbose takes one of these: " + ", ".join(_PROGRESS_LEVELS) + ".")
    if settings is not None:
        await settings.save_progress(level)
    return TextReply(f"Tool progress: {level}.", progress=level)


async def _redraw(context: CommandContext, words: str) -> CommandReply:
    _require_ability(context, TerminalAbility.LOOKS)
    return ScreenReply(ScreenAction.REDRAW)


async def _timestamps(context: CommandContext, words: str) -> CommandReply:
    return _switch_screen(context, ScreenAction.TIMES, words)


async def _statusbar(context: CommandContext, words: str) -> CommandReply:
    return _switch_screen(context, ScreenAction.STATUSBAR, words)


def _switch_screen(context: CommandContext, what: ScreenAction, words: str) -> CommandReply:
    _require_ability(context, TerminalAbility.LOOKS)
    if words.lower() not in {"", "on", "off"}:
        raise UsageError("It is on or off; without a word it becomes the other.")
    return ScreenReply(what, words.lower())


async def _prompt(context: CommandContext, words: str) -> CommandReply:
    _require_ability(context, TerminalAbility.LOOKS)
    return ScreenReply(ScreenAction.COMPOSE, words)


def _has_screen(context: CommandContext) -> bool:
    return TerminalAbility.LOOKS in context.seat.abilities


def _next_level(level: str) -> str:
    place = _PROGRESS_LEVELS.index(level) if level in _PROGRESS_LEVELS else -1
    return _PROGRESS_LEVELS[(place + 1) % len(_PROGRESS_LEVELS)]


async def _quit(context: CommandContext, words: str) -> CommandReply:
    if words not in {"", "--delete"}:
        raise UsageError("/quit takes --delete or nothing.")
    conversation = context.conversation
    if words and conversation.started:
        if context.work.activity().running:
            raise UsageError("A turn is still running.", hint="/stop ends it.")
        await conversation.archive.delete([conversation.session.id])
        conversation.start_new()
    return QuitReply()


COMMANDS = (
    Command(
        name="clear",
        usage="[title]",
        summary="Empty the screen and start anew.",
        where=Availability.TERMINAL,
        needs=lambda context: TerminalAbility.CLEAR in context.seat.abilities,
        run=_clear,
    ),
    Command(
        name="copy",
        usage="[number]",
        summary="Copy the last answer.",
        where=Availability.TERMINAL,
        needs=lambda context: TerminalAbility.COPY in context.seat.abilities,
        run=_copy,
    ),
    Command(
        name="image",
        usage="<path> [text]",
        summary="Send a picture, with something about it.",
        where=Availability.TERMINAL,
        owners=True,
        run=_image,
    ),
    Command(
        name="save",
        usage="[path]",
        summary="Write this session to a file, .md or .json.",
        where=Availability.TERMINAL,
        owners=True,
        run=_save,
    ),
    Command(
        name="verbose",
        usage="[off|new|all|verbose]",
        summary="Change how much of the tools' work is shown.",
        where=Availability.TERMINAL,
        needs=lambda context: TerminalAbility.PROGRESS in context.seat.abilities,
        run=_verbose,
    ),
    Command(
        name="redraw",
        summary="Draw the screen again.",
        where=Availability.TERMINAL,
        needs=_has_screen,
        run=_redraw,
    ),
    Command(
        name="timestamps",
        aliases=("ts",),
        usage="[on|off]",
        summary="Show when things were said, or do not, until you leave.",
        where=Availability.TERMINAL,
        needs=_has_screen,
        run=_timestamps,
    ),
    Command(
        name="statusbar",
        aliases=("sb",),
        usage="[on|off]",
        summary="Show the line at the bottom, or do not, until you leave.",
        where=Availability.TERMINAL,
        needs=_has_screen,
        run=_statusbar,
    ),
    Command(
        name="prompt",
        aliases=("compose",),
        usage="[text]",
        summary="Write what you want to say in your editor.",
        where=Availability.TERMINAL,
        needs=_has_screen,
        run=_prompt,
    ),
    Command(
        name="quit",
        aliases=("exit",),
        usage="[--delete]",
        summary="Leave; --delete also forgets this session.",
        where=Availability.TERMINAL,
        run=_quit,
    ),
)
