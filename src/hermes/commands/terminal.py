"""Commands that need somebody's own machine: its files, its screen, its clipboard."""

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import msgspec
from anyio import to_thread

from hermes.commands.command import (
    Ask,
    Command,
    Context,
    Leave,
    OnScreen,
    Reply,
    Told,
    Where,
)
from hermes.commands.numbers import counted
from hermes.commands.surface import Ability, Looks
from hermes.kit.files import advice
from hermes.kit.plain import harmless
from hermes.schema.errors import UsageError
from hermes.schema.messages import Assistant, Text, text_of
from hermes.schema.sessions import Stored
from hermes.session.recap import recap

_LEVELS = ("off", "new", "all", "verbose")


async def _clear(context: Context, words: str) -> Reply:
    _need(context, Ability.CLEAR)
    begun = await context.work.begin(words)
    return Told(f"New session {begun.session.id}.{begun.aside}", clear=True)


def _need(context: Context, ability: Ability) -> None:
    if ability not in context.seat.abilities:
        raise UsageError("This terminal cannot do that.")


async def _copy(context: Context, words: str) -> Reply:
    _need(context, Ability.COPY)
    place = counted(words or "1")
    if place is None:
        raise UsageError("/copy takes a number: 1 is the last answer, 2 the one before it.")
    rows = await context.conversation.messages()
    answers = [text_of(row.message) for row in rows if isinstance(row.message, Assistant)]
    answers = [text for text in answers if text.strip()]
    if place > len(answers):
        raise UsageError("There is no such answer to copy.")
    # Whether it does is not told to anybody.
    return Told("Asked the terminal to copy it.", clip=harmless(answers[-place]))


async def _image(context: Context, words: str) -> Reply:
    pictures = context.services.pictures
    if pictures is None:
        raise UsageError("Pictures cannot be sent from here.")
    path, said = _path_and_words(words)
    picture = await pictures.load(str(_target(context.conversation.session.cwd, path)))
    return Ask((Text(said), picture) if said else (picture,))


def _path_and_words(words: str) -> tuple[str, str]:
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


async def _save(context: Context, words: str) -> Reply:
    session = context.conversation.session
    rows = await context.conversation.messages()
    if not rows:
        raise UsageError("Nothing has been said yet.")
    path = _target(session.cwd, words or f"hermes_{session.id}.json")
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
            f"{path} cannot be written: {error.strerror}.", hint=advice(error)
        ) from error
    return Told(f"Saved to {path}.")


def _target(folder: str, name: str) -> Path:
    return Path(folder) / Path(name).expanduser()


def _write_new(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)


def _as_markdown(title: str, rows: Sequence[Stored], ends: Mapping[str, str]) -> str:
    told = recap(rows, len(rows), ends=ends)
    spoken = [f"## {who}\n\n{said}" if who else said for who, said in told]
    return "\n\n".join([f"# {title}", *spoken]) + "\n"


async def _verbose(context: Context, words: str) -> Reply:
    _need(context, Ability.PROGRESS)
    settings = context.services.settings
    level = words.lower() or _after(settings.progress() if settings is not None else "")
    if level not in _LEVELS:
        raise UsageError("/verbose takes one of these: " + ", ".join(_LEVELS) + ".")
    if settings is not None:
        await settings.keep_progress(level)
    return Told(f"Tool progress: {level}.", progress=level)


async def _redraw(context: Context, words: str) -> Reply:
    _need(context, Ability.LOOKS)
    return OnScreen(Looks.REDRAW)


async def _timestamps(context: Context, words: str) -> Reply:
    return _switch(context, Looks.TIMES, words)


async def _statusbar(context: Context, words: str) -> Reply:
    return _switch(context, Looks.STATUSBAR, words)


def _switch(context: Context, what: Looks, words: str) -> Reply:
    _need(context, Ability.LOOKS)
    if words.lower() not in {"", "on", "off"}:
        raise UsageError("It is on or off; without a word it becomes the other.")
    return OnScreen(what, words.lower())


async def _prompt(context: Context, words: str) -> Reply:
    _need(context, Ability.LOOKS)
    return OnScreen(Looks.COMPOSE, words)


def _has_looks(context: Context) -> bool:
    return Ability.LOOKS in context.seat.abilities


def _after(level: str) -> str:
    place = _LEVELS.index(level) if level in _LEVELS else -1
    return _LEVELS[(place + 1) % len(_LEVELS)]


async def _quit(context: Context, words: str) -> Reply:
    if words not in {"", "--delete"}:
        raise UsageError("/quit takes --delete or nothing.")
    conversation = context.conversation
    if words and conversation.started:
        if context.work.activity().running:
            raise UsageError("A turn is still running.", hint="/stop ends it.")
        await conversation.archive.delete([conversation.session.id])
        conversation.start_new()
    return Leave()


COMMANDS = (
    Command(
        name="clear",
        usage="[title]",
        summary="Empty the screen and start anew.",
        where=Where.TERMINAL,
        needs=lambda context: Ability.CLEAR in context.seat.abilities,
        run=_clear,
    ),
    Command(
        name="copy",
        usage="[number]",
        summary="Copy the last answer.",
        where=Where.TERMINAL,
        needs=lambda context: Ability.COPY in context.seat.abilities,
        run=_copy,
    ),
    Command(
        name="image",
        usage="<path> [text]",
        summary="Send a picture, with something about it.",
        where=Where.TERMINAL,
        owners=True,
        run=_image,
    ),
    Command(
        name="save",
        usage="[path]",
        summary="Write this session to a file, .md or .json.",
        where=Where.TERMINAL,
        owners=True,
        run=_save,
    ),
    Command(
        name="verbose",
        usage="[off|new|all|verbose]",
        summary="Change how much of the tools' work is shown.",
        where=Where.TERMINAL,
        needs=lambda context: Ability.PROGRESS in context.seat.abilities,
        run=_verbose,
    ),
    Command(
        name="redraw",
        summary="Draw the screen again.",
        where=Where.TERMINAL,
        needs=_has_looks,
        run=_redraw,
    ),
    Command(
        name="timestamps",
        aliases=("ts",),
        usage="[on|off]",
        summary="Show when things were said, or do not, until you leave.",
        where=Where.TERMINAL,
        needs=_has_looks,
        run=_timestamps,
    ),
    Command(
        name="statusbar",
        aliases=("sb",),
        usage="[on|off]",
        summary="Show the line at the bottom, or do not, until you leave.",
        where=Where.TERMINAL,
        needs=_has_looks,
        run=_statusbar,
    ),
    Command(
        name="prompt",
        aliases=("compose",),
        usage="[text]",
        summary="Write what you want to say in your editor.",
        where=Where.TERMINAL,
        needs=_has_looks,
        run=_prompt,
    ),
    Command(
        name="quit",
        aliases=("exit",),
        usage="[--delete]",
        summary="Leave; --delete also forgets this session.",
        where=Where.TERMINAL,
        run=_quit,
    ),
)
