"""`hermes`, `hermes chat`, `-z`, `-q`: talk to the agent, once or for as long as you like."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace

from hermes.cli.context import CliContext
from hermes.schema.errors import UsageError

STDIN_LIMIT = 10_000_000
STDIN_NOTICE_SECONDS = 2.0
"""Seconds after which a person is told what is being waited for."""
_EXAMPLE = 'Try: hermes -z "What is this folder?"'


def add_arguments(parser: ArgumentParser) -> None:
    ask = parser.add_argument_group("what to say (text piped in is added to it)")
    ask.add_argument("-z", "--oneshot", metavar="PROMPT", help="print the answer, nothing else")
    ask.add_argument("-q", "--query", metavar="PROMPT", help="answer one prompt, show the work")
    ask.add_argument("--image", metavar="PATH", action="append", default=[], help="show a picture")
    back = parser.add_argument_group("which session")
    back.add_argument(
        "-c", "--continue", dest="go_on", metavar="NAME", nargs="?", const="", default=None,
        help="go on with the last session, or the one of this id or title",
    )  # fmt: skip
    back.add_argument("-r", "--resume", metavar="ID", help="go on with this session")
    mind = parser.add_argument_group("how")
    mind.add_argument("-m", "--model", metavar="NAME", help="model to use")
    mind.add_argument("--provider", metavar="NAME", help="provider to use")
    mind.add_argument("-t", "--toolsets", metavar="A,B", help="tools to offer")
    mind.add_argument("--max-turns", metavar="N", type=_step_count, help="steps one turn may take")
    mind.add_argument("--cwd", metavar="DIR", help="folder to work in (default: this one)")
    mind.add_argument("--yolo", action="store_true", help="ask for nothing before acting")
    mind.add_argument("--accept-hooks", action="store_true", help="as `hermes hooks accept` before")
    mind.add_argument("--source", metavar="TAG", default="cli", help=SUPPRESS)
    out = parser.add_argument_group("what to print")
    out.add_argument("-Q", "--quiet", action="store_true", help="only the answer on stdout")
    out.add_argument("--plain", action="store_true", help="line by line, no escape codes")
    out.add_argument("--cli", action="store_true", help="line by line, with colours")
    out.add_argument("--tui", action="store_true", help="chat on the whole screen")
    out.add_argument("--json", action="store_true", help="every event as a line of JSON")
    out.add_argument("--usage-file", metavar="PATH", help="write tokens and cost there as JSON")
    parser.epilog = (
        "Exit codes: 0 answered, 1 failed, 2 wrong usage, 3 ran out of steps, "
        "75 session in use, 78 wrong configuration, 130 interrupted."
    )


def run(args: Namespace, context: CliContext) -> int:
    _check_flags(args)
    if args.plain:
        context.disable_escapes()
    if args.accept_hooks:
        from hermes.cli.verbs.hooks.actions import accept_hooks

        accept_hooks(context)
    prompt = _prompt(args, context)
    if prompt is None:
        from hermes.cli.verbs.chat import choose_first_model

        choose_first_model(args, context)
        if _wants_tui(args, context):
            from hermes.cli.verbs.chat.full_screen import run_chat
        else:
            from hermes.cli.verbs.chat.interactive import run_chat
        return run_chat(args, context)
    from hermes.cli.verbs.chat.oneshot import run_oneshot

    return run_oneshot(args, prompt, context)


def _wants_tui(args: Namespace, context: CliContext) -> bool:
    if args.plain or args.cli:
        return False
    return (args.tui or _tui_is_default(context)) and _supports_tui(context)


def _tui_is_default(context: CliContext) -> bool:
    """As the settings say, which may also want no escape code at all."""
    from hermes.config.dotenv import profile_env
    from hermes.config.loader import load_config

    home = context.home()
    display = load_config(home, profile_env(home.dotenv, context.env)).config.display
    if display.interface == "plain":
        context.disable_escapes()
    return display.interface not in {"cli", "plain"}


def _supports_tui(context: CliContext) -> bool:
    """A terminal that can move its cursor, and the library that draws on it."""
    drawn_on = (context.stdin, context.stdout, context.stderr)
    if context.env.get("TERM") in {None, "", "dumb"}:
        return False
    if not all(stream.isatty() for stream in drawn_on):
        return False
    from importlib.util import find_spec

    return find_spec("textual") is not None


def _step_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of steps")
    return int(text)


def _check_flags(args: Namespace) -> None:
    if args.oneshot is not None and args.query is not None:
        raise UsageError("Use either -z or -q, not both.")
    if args.plain + args.cli + args.tui > 1:
        raise UsageError("Use only one of --plain, --cli and --tui.")
    if args.resume and args.go_on is not None:
        raise UsageError("Use either -c or -r, not both.")


def _prompt(args: Namespace, context: CliContext) -> str | None:
    """What to ask once; None when a person at a terminal wants to talk."""
    asked: str | None = args.oneshot if args.oneshot is not None else args.query
    piped = _read_stdin(context, waited_for=asked is None)
    once = args.json or args.quiet or args.usage_file
    if asked is None and not piped and not args.image:
        if context.stdin.isatty() and not once:
            return None
        raise UsageError("There is nothing to answer.", hint=_EXAMPLE)
    prompt = "\n\n".join(part for part in (decode_argument(asked or ""), piped) if part.strip())
    if not prompt and not args.image:
        raise UsageError("The prompt is empty.", hint=_EXAMPLE)
    return prompt


def decode_argument(given: str) -> str:
    """An argument or a typed line; bytes in it that were no UTF-8 become a mark."""
    return given.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_stdin(context: CliContext, *, waited_for: bool) -> str:
    """What comes through stdin, to its end. Nothing is lost when it takes a while to come."""
    stdin = context.stdin
    if stdin.closed or stdin.isatty() or not _has_input(stdin.fileno()):
        return ""
    if not waited_for and not _has_data(stdin.fileno()):
        context.stderr.write("hermes: waiting for the end of stdin (skip it with < /dev/null)\n")
        context.stderr.flush()
    data = stdin.buffer.read(STDIN_LIMIT + 1)
    if len(data) > STDIN_LIMIT:
        raise UsageError(
            "More than 10 MB were piped in.", hint="Write it to a file and name the file instead."
        )
    return data.decode("utf-8", "replace")


def _has_input(fd: int) -> bool:
    """Pipes, files and sockets are read; anything else (/dev/null, a closed end) is no input."""
    import os
    import stat

    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _has_data(fd: int) -> bool:
    """Whether there is something to read, or the end of it, within a moment."""
    from select import select

    return bool(select([fd], [], [], STDIN_NOTICE_SECONDS)[0])


def choose_first_model(args: Namespace, context: CliContext) -> None:
    """Nothing happens in a home that has settings, or where some model can be reached.

    Raises `UsageError` when the person does not choose.
    """
    home = context.home()
    if args.model or args.provider or home.config.exists() or home.dotenv.exists():
        return
    from hermes.models.resolver import NoProviderConfigured, resolve_models
    from hermes.models.settings import ModelSettings
    from hermes.schema.errors import ConfigError

    try:
        resolve_models(ModelSettings(), context.env.get)
    except NoProviderConfigured:
        pass
    except ConfigError:
        return
    else:
        return
    if _has_local_model(context):
        return
    from hermes.cli.verbs.setup.wizard import run_setup

    context.stderr.write("There is no model yet; this is asked once, and `hermes setup` later.\n")
    run_setup(_default_setup_args(), context)


def _has_local_model(context: CliContext) -> bool:
    import anyio

    from hermes.models.discovery import find_local_servers
    from hermes.models.embedded.target import local_server_under

    return bool(
        local_server_under(context.home().root) or anyio.run(find_local_servers, context.env.get)
    )


def _default_setup_args() -> Namespace:
    """As `hermes setup` without a word more."""
    from hermes.cli.verbs.setup import add_arguments

    parser = ArgumentParser(add_help=False)
    add_arguments(parser)
    return parser.parse_args([])
