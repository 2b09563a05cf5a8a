"""Answer one prompt and leave: for people in a hurry, scripts and pipes."""

import os
from argparse import Namespace
from pathlib import Path

from hermes.cli.boundary import grumble, silence_stdout
from hermes.cli.context import CliContext
from hermes.cli.export.plain import harmless
from hermes.cli.listeners import JsonLines, Listener, Quiet
from hermes.cli.signals import ended_by_signals
from hermes.cli.start import picture_paths, start_of
from hermes.local.meet import meet
from hermes.local.partner import Partner, Question
from hermes.schema.errors import HermesError, UsageError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Text

EXIT_CODES = {
    Outcome.DONE: 0,
    Outcome.FAILED: 1,
    Outcome.EXHAUSTED: 3,
    Outcome.CANCELLED: 130,
}
_ELSEWHERE = "Give --usage-file another place."


def answer(args: Namespace, prompt: str, context: CliContext) -> int:
    if args.usage_file:
        _check_place(Path(args.usage_file))
    parts = (Text(prompt),) if prompt else ()
    question = Question(parts, picture_paths(args.image))
    with meet(context.home(), context.env, start_of(args)) as partner:
        for note in partner.greeting.notes:
            context.stderr.write(f"hermes: {note}\n")
        for warning in partner.greeting.warnings:
            context.stderr.write(f"hermes: warning: {warning}\n")
        return answer_with(partner, question, args, context)


def answer_with(partner: Partner, question: Question, args: Namespace, context: CliContext) -> int:
    listener = _listener(args, context)
    try:
        code = _run(partner, question, listener)
    except HermesError as error:
        _tell_of(error, listener)
        raise
    finally:
        _print(args, partner, listener, context)
    if args.usage_file:
        from hermes.cli.usage_report import write_usage

        write_usage(Path(args.usage_file), partner.report(listener.ended))
    return code


def _check_place(path: Path) -> None:
    """Before anything is spent: can the file be written? Raises `UsageError`."""
    if not path.parent.is_dir():
        told = f"{path.parent}, where --usage-file points, is not a folder."
        raise UsageError(told, hint=_ELSEWHERE)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written.", hint=_ELSEWHERE)


def _run(partner: Partner, question: Question, listener: Listener) -> int:
    """One turn; a signal ends it, and so does a reader who has gone away."""

    def show(event: Event) -> None:
        try:
            listener(event)
        except OSError:
            silence_stdout()
            raise

    with ended_by_signals(partner.interrupt) as heard:
        try:
            outcome = partner.say(question, show)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritten(error) from error
    return heard.exit_code or EXIT_CODES[outcome]


def _unwritten(error: OSError) -> HermesError:
    return HermesError(
        f"The output cannot be written: {error.strerror}.",
        hint="Nothing is lost: `hermes -c` goes on with it, and `hermes sessions list` has it.",
    )


def _tell_of(error: HermesError, listener: Listener) -> None:
    """A program that reads events gets a last one, also when nothing could be started."""
    if listener.ended is None and isinstance(listener, JsonLines):
        listener(RunEnded("", Outcome.FAILED, error.sentence, error.code))


def _listener(args: Namespace, context: CliContext) -> Listener:
    if args.json:
        return JsonLines(context.stdout)
    if args.quiet or args.query is None:
        return Quiet(context.stderr)
    from hermes.cli.screen import Screen
    from hermes.cli.style import Style
    from hermes.cli.taste_settings import taste_in
    from hermes.kit.clock import SystemClock

    style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
    taste = taste_in(context)
    return Screen(context.stdout, style, SystemClock(), reasoning=style.on, taste=taste)


def _print(args: Namespace, partner: Partner, listener: Listener, context: CliContext) -> None:
    """The answer for those who only want that; what else is to be known goes to stderr."""
    if isinstance(listener, Quiet):
        _print_answer(listener, context)
    context.stdout.flush()
    if args.query is not None and not args.json and partner.state.started:
        grumble(f"session_id: {partner.state.session}\n")


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
