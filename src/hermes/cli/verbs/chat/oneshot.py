"""Answer one prompt and leave: for people in a hurry, scripts and pipes."""

import os
from argparse import Namespace
from pathlib import Path

import msgspec

from hermes.cli.boundary import silence_stdout, write_stderr
from hermes.cli.context import CliContext
from hermes.cli.verbs.chat.listeners import AnswerListener, JsonListener, Listener
from hermes.cli.verbs.chat.options import conversation_options, image_paths
from hermes.cli.verbs.chat.signals import end_on_signals
from hermes.ipc.client import AgentClient, UsageReport, UserInput
from hermes.ipc.connect import connect
from hermes.kit.files import write_atomic
from hermes.kit.terminal_text import escape_controls
from hermes.schema.errors import HermesError, UsageError
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Text

EXIT_CODES = {
    Outcome.DONE: 0,
    Outcome.FAILED: 1,
    Outcome.EXHAUSTED: 3,
    Outcome.CANCELLED: 130,
}
_USAGE_FILE_HINT = "Give --usage-file another place."


def run_oneshot(args: Namespace, prompt: str, context: CliContext) -> int:
    if args.usage_file:
        _check_usage_file(Path(args.usage_file))
    parts = (Text(prompt),) if prompt else ()
    question = UserInput(parts, image_paths(args.image))
    with connect(context.home(), context.env, conversation_options(args)) as partner:
        for note in partner.greeting.notes:
            context.stderr.write(f"hermes: {note}\n")
        for warning in partner.greeting.warnings:
            context.stderr.write(f"hermes: warning: {warning}\n")
        return run_input(partner, question, args, context)


def run_input(
    partner: AgentClient, question: UserInput, args: Namespace, context: CliContext
) -> int:
    listener = _make_listener(args, context)
    try:
        code = _run(partner, question, listener)
    except HermesError as error:
        _emit_failure(error, listener)
        raise
    finally:
        _print(args, partner, listener, context)
    if args.usage_file:
        from hermes.cli.verbs.chat.oneshot import write_usage

        write_usage(Path(args.usage_file), partner.report(listener.ended))
    return code


def _check_usage_file(path: Path) -> None:
    """Before anything is spent: can the file be written? Raises `UsageError`."""
    if not path.parent.is_dir():
        told = f"{path.parent}, where --usage-file points, is not a folder."
        raise UsageError(told, hint=_USAGE_FILE_HINT)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written.", hint=_USAGE_FILE_HINT)


def _run(partner: AgentClient, question: UserInput, listener: Listener) -> int:
    """One turn; a signal ends it, and so does a reader who has gone away."""

    def show(event: Event) -> None:
        try:
            listener(event)
        except OSError:
            silence_stdout()
            raise

    with end_on_signals(partner.interrupt) as heard:
        try:
            outcome = partner.say(question, show)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _output_error(error) from error
    return heard.exit_code or EXIT_CODES[outcome]


def _output_error(error: OSError) -> HermesError:
    return HermesError(
        f"The output cannot be written: {error.strerror}.",
        hint="Nothing is lost: `hermes -c` goes on with it, and `hermes sessions list` has it.",
    )


def _emit_failure(error: HermesError, listener: Listener) -> None:
    """A program that reads events gets a last one, also when nothing could be started."""
    if listener.ended is None and isinstance(listener, JsonListener):
        listener(RunEnded("", Outcome.FAILED, error.sentence, error.code))


def _make_listener(args: Namespace, context: CliContext) -> Listener:
    if args.json:
        return JsonListener(context.stdout)
    if args.quiet or args.query is None:
        return AnswerListener(context.stderr)
    from hermes.cli.output import Style
    from hermes.cli.verbs.chat.display_settings import load_display_options
    from hermes.cli.verbs.chat.event_printer import EventPrinter
    from hermes.kit.clock import SystemClock

    style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
    taste = load_display_options(context)
    return EventPrinter(context.stdout, style, SystemClock(), reasoning=style.on, taste=taste)


def _print(args: Namespace, partner: AgentClient, listener: Listener, context: CliContext) -> None:
    """The answer for those who only want that; what else is to be known goes to stderr."""
    if isinstance(listener, AnswerListener):
        _print_answer(listener, context)
    context.stdout.flush()
    if args.query is not None and not args.json and partner.state.started:
        write_stderr(f"session_id: {partner.state.session}\n")


def _print_answer(listener: Listener, context: CliContext) -> None:
    words = listener.answer.rstrip("\n")
    if words:
        shown = escape_controls(words) if context.stdout.isatty() else words
        try:
            context.stdout.write(shown + "\n")
            context.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            silence_stdout()
            raise _output_error(error) from error
    if listener.ended and listener.ended.reason:
        context.stderr.write(f"hermes: {listener.ended.reason}\n")


def write_usage(path: Path, report: UsageReport) -> None:
    try:
        write_atomic(path, msgspec.json.encode(report) + b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
