"""Answer one prompt and exit (`-z`, `-q`)."""

import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import structs

from hermes.cli.boundary import silence_stdout, write_stderr
from hermes.cli.context import CliContext
from hermes.cli.output import Style
from hermes.cli.verbs.chat import (
    conversation_options,
    image_paths,
    load_display_options,
)
from hermes.cli.verbs.chat.listeners import AnswerListener, JsonListener, Listener
from hermes.cli.verbs.chat.signals import ReceivedSignal, end_on_signals
from hermes.ipc.client import AgentClient, UsageReport, UserInput
from hermes.ipc.connect import connect
from hermes.kit.clock import SystemClock
from hermes.kit.files import write_atomic
from hermes.kit.terminal_text import escape_controls
from hermes.schema.errors import HermesError, UsageError
from hermes.schema.events import Event, Outcome, QuestionAsked, RunEnded
from hermes.schema.messages import Text, final_text
from hermes.schema.questions import Question

EXIT_CODES = {
    Outcome.DONE: 0, Outcome.FAILED: 1, Outcome.EXHAUSTED: 3, Outcome.CANCELLED: 130,
}  # fmt: skip
REFUSED = 4
"""Exit code of a turn in which something was not done because no one could be asked."""
Ask: TypeAlias = Callable[[Question, ReceivedSignal], None]
_USAGE_FILE_HINT = "Choose another path for --usage-file."


def run_oneshot(args: Namespace, prompt: str, context: CliContext) -> int:
    """Open the agent, show its warnings, and ask it the prompt."""
    if args.usage_file:
        _check_usage_file(Path(args.usage_file))
    parts = (Text(prompt),) if prompt else ()
    question = UserInput(parts, image_paths(args.image) if args.image else ())
    # With -q at a terminal, a person can answer questions.
    shows_events = args.query is not None and not args.quiet and not args.json
    attended = shows_events and context.stdin.isatty() and context.stdout.isatty()
    start = structs.replace(
        conversation_options(args),
        attended=attended,
        refresh=bool(args.usage_file),
    )
    with connect(context.home(), context.env, start) as agent:
        for note in agent.greeting.notes:
            context.note(f"hermes: {note}")
        for warning in agent.greeting.warnings:
            context.note(f"hermes: warning: {warning}")
        return run_input(agent, question, args, context, attended=attended)


def run_input(
    agent: AgentClient,
    question: UserInput,
    args: Namespace,
    context: CliContext,
    *,
    attended: bool = False,
) -> int:
    """Run one turn, print what the flags ask for, and return the exit code."""
    listener: Listener
    if args.json:
        listener = JsonListener(context.stdout)
    elif args.quiet or args.query is None:
        listener = AnswerListener(context.stderr)
    else:
        listener = _event_printer(context)
    try:
        ask = _make_answerer(agent, context) if attended else _no_questions
        code = _run(agent, question, listener, ask)
    except HermesError as error:
        if listener.ended is None and isinstance(listener, JsonListener):
            # The last event is emitted even if the run never started.
            listener(RunEnded("", Outcome.FAILED, error.sentence, error.code))
        raise
    finally:
        if isinstance(listener, AnswerListener):
            _print_answer(listener, context)
        context.stdout.flush()
        if args.query is not None and not args.json and agent.state.started:
            write_stderr(f"session_id: {agent.state.session}\n")
    if args.usage_file:
        _write_usage(Path(args.usage_file), agent.usage_report(listener.ended))
    return code or (REFUSED if listener.refused else 0)


def _make_answerer(agent: AgentClient, context: CliContext) -> Ask:
    from hermes.cli.verbs.chat.terminal_input import ask_at_terminal, terminal_attention

    style, clock = Style(context.stdout, context.env), SystemClock()

    def ask(question: Question, received: ReceivedSignal) -> None:
        answer = ask_at_terminal(
            question,
            context.stdin,
            context.stdout,
            clock,
            attention=terminal_attention(context, style),
            interrupted=lambda: received.number is not None,
        )
        if answer is not None:
            agent.answer(question.id, answer)

    return ask


def _no_questions(question: Question, received: ReceivedSignal) -> None:
    """Ask no one here: the question is answered elsewhere, or expires."""


def _check_usage_file(path: Path) -> None:
    """Raise `UsageError` before the turn if the file cannot be written."""
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder.", hint=_USAGE_FILE_HINT)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"Cannot write {path}.", hint=_USAGE_FILE_HINT)


def _run(agent: AgentClient, question: UserInput, listener: Listener, ask: Ask) -> int:
    """Run one turn; a signal or a closed output ends it."""

    def show(event: Event) -> None:
        try:
            listener(event)
        except OSError:
            silence_stdout()
            raise
        if isinstance(event, QuestionAsked):
            ask(event.question, received)

    with end_on_signals(agent.interrupt) as received:
        try:
            outcome = agent.submit(question, show)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _output_error(error) from error
    return EXIT_CODES[outcome] if received.number is None else 128 + received.number


def _output_error(error: OSError) -> HermesError:
    return HermesError(
        f"Cannot write the output: {error.strerror}.",
        hint="The answer is stored in the session: hermes -c, or hermes sessions list",
    )


def _event_printer(context: CliContext) -> Listener:
    from hermes.cli.verbs.chat.event_printer import EventPrinter
    from hermes.cli.verbs.chat.kept_output import KeptOutput

    options = load_display_options(context)
    style = Style(context.stdout, context.env)
    return EventPrinter(context.stdout, style, SystemClock(), options, kept=KeptOutput())


def _print_answer(listener: Listener, context: CliContext) -> None:
    """Print the answer, and why there is none."""
    answer = final_text(listener.messages).rstrip("\n")
    if answer:
        shown = escape_controls(answer) if context.stdout.isatty() else answer
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


def _write_usage(path: Path, report: UsageReport) -> None:
    try:
        write_atomic(path, msgspec.json.encode(report) + b"\n")
    except OSError as error:
        raise UsageError(f"Cannot write {path}: {error.strerror}.") from error
