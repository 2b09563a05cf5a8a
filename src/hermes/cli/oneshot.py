"""Answer one prompt and leave: for people in a hurry, scripts and pipes."""

import os
from argparse import Namespace
from pathlib import Path

import anyio

from hermes.app.build import App, open_app
from hermes.app.pictures import load_pictures
from hermes.cli.boundary import grumble, silence_stdout
from hermes.cli.context import CliContext
from hermes.cli.export.plain import harmless
from hermes.cli.listeners import JsonLines, Listener, Quiet
from hermes.cli.signals import ended_by_signals
from hermes.cli.start import choices, restore
from hermes.schema.errors import HermesError, UsageError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Media, Text

EXIT_CODES = {
    Outcome.DONE: 0,
    Outcome.FAILED: 1,
    Outcome.EXHAUSTED: 3,
    Outcome.CANCELLED: 130,
}


def answer(args: Namespace, prompt: str, context: CliContext) -> int:
    return anyio.run(_answer, args, prompt, context)


async def _answer(args: Namespace, prompt: str, context: CliContext) -> int:
    if args.usage_file:
        _check_place(Path(args.usage_file))
    async with open_app(context.home(), context.env, choices(args)) as app:
        for warning in app.warnings:
            context.stderr.write(f"hermes: warning: {warning}\n")
        await restore(args, app, context)
        parts: list[Text | Media] = [Text(prompt)] if prompt else []
        parts += await load_pictures(app.blobs, args.image)
        listener = _listener(args, app, context)
        try:
            code = await _run(app, parts, listener)
        except HermesError as error:
            await _tell_of(error, listener)
            raise
        finally:
            _print(args, app, listener, context)
        if args.usage_file:
            from hermes.cli.usage_report import write_usage

            await write_usage(Path(args.usage_file), app, listener.ended)
        return code


def _check_place(path: Path) -> None:
    """Before anything is spent: can the file be written? Raises `UsageError`."""
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}, where --usage-file points, is not a folder.")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written.", hint="Give --usage-file another place.")


async def _run(app: App, parts: list[Text | Media], listener: Listener) -> int:
    """One turn; a signal ends it, and so does a reader who has gone away."""
    lost: OSError | None = None

    async def listen(event: Event) -> None:
        nonlocal lost
        try:
            await listener(event)
        except OSError as error:
            lost = error
            silence_stdout()
            app.conversation.interrupt()

    with ended_by_signals(app.conversation.interrupt) as heard:
        outcome = await app.conversation.say(parts, listen)
    if listener.ended is None:
        await listen(RunEnded("", outcome, "Interrupted.", "cancelled"))
    if lost is not None:
        raise lost if isinstance(lost, BrokenPipeError) else _unwritten(lost)
    return heard.exit_code or EXIT_CODES[outcome]


def _unwritten(error: OSError) -> HermesError:
    return HermesError(
        f"The output cannot be written: {error.strerror}.",
        hint="Nothing is lost: `hermes sessions show` has what was said.",
    )


async def _tell_of(error: HermesError, listener: Listener) -> None:
    """A program that reads events gets a last one, also when nothing could be started."""
    if listener.ended is None and isinstance(listener, JsonLines):
        reason = f"{error} {error.hint}".strip()
        await listener(RunEnded("", Outcome.FAILED, reason, error.code))


def _listener(args: Namespace, app: App, context: CliContext) -> Listener:
    if args.json:
        return JsonLines(context.stdout)
    if args.quiet or args.query is None:
        return Quiet(context.stderr)
    from hermes.cli.screen import Screen
    from hermes.cli.style import Style

    style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
    return Screen(context.stdout, style, app.clock, reasoning=style.on)


def _print(args: Namespace, app: App, listener: Listener, context: CliContext) -> None:
    """The answer for those who only want that; what else is to be known goes to stderr."""
    if isinstance(listener, Quiet):
        _print_answer(listener, context)
    context.stdout.flush()
    if args.query is not None and not args.json and app.conversation.started:
        grumble(f"session_id: {app.conversation.session.id}\n")


def _print_answer(listener: Listener, context: CliContext) -> None:
    words = listener.answer.rstrip("\n")
    if words:
        shown = harmless(words) if context.stdout.isatty() else words
        try:
            context.stdout.write(shown + "\n")
            context.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            silence_stdout()
            raise _unwritten(error) from error
    if listener.ended and listener.ended.reason:
        context.stderr.write(f"hermes: {listener.ended.reason}\n")
