"""`hermes` and `hermes chat`: chat with the agent, or answer one prompt (`-z`, `-q`)."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace

from hermes.cli.context import CliContext
from hermes.schema.errors import UsageError

STDIN_LIMIT = 10_000_000
STDIN_NOTICE_SECONDS = 2.0
"""Seconds without input before the wait is announced."""
_EXAMPLE = 'Try: hermes -z "What is this folder?"'


def add_arguments(parser: ArgumentParser) -> None:
    prompt = parser.add_argument_group("prompt (piped text is added to it)")
    prompt.add_argument("-z", "--oneshot", metavar="PROMPT", help="print only the answer")
    prompt.add_argument("-q", "--query", metavar="PROMPT", help="answer and show the steps")
    prompt.add_argument(
        "--image", metavar="PATH", action="append", default=[], help="attach an image; repeatable"
    )
    session = parser.add_argument_group("session")
    session.add_argument(
        "-c", "--continue", dest="continue_session", metavar="NAME", nargs="?", const="",
        help="continue the last session, or the one with this id or title",
    )  # fmt: skip
    session.add_argument("-r", "--resume", metavar="ID", help="continue this session")
    agent = parser.add_argument_group("agent")
    agent.add_argument("-m", "--model", metavar="NAME", help="model to use")
    agent.add_argument("--provider", metavar="NAME", help="provider to use")
    agent.add_argument("-t", "--toolsets", metavar="A,B", help="toolsets to use")
    agent.add_argument(
        "--max-turns", metavar="N", type=_step_count, help="maximum model calls in a turn"
    )
    agent.add_argument("--cwd", metavar="DIR", help="working directory (default: current)")
    agent.add_argument("--yolo", action="store_true", help="skip all approvals")
    agent.add_argument("--accept-hooks", action="store_true", help="accept all configured hooks")
    agent.add_argument("--source", metavar="TAG", default="cli", help=SUPPRESS)
    out = parser.add_argument_group("output")
    out.add_argument("-Q", "--quiet", action="store_true", help="hide the steps")
    out.add_argument("--plain", action="store_true", help="line mode without escape codes")
    out.add_argument("--cli", action="store_true", help="line mode with colors")
    out.add_argument("--tui", action="store_true", help="full-screen mode")
    out.add_argument("--json", action="store_true", help="print each event as a line of JSON")
    out.add_argument("--usage-file", metavar="PATH", help="write tokens and cost as JSON")
    parser.epilog = (
        "Exit codes: 0 success, 1 failure, 2 usage error, 3 step limit reached, "
        "75 session in use, 78 configuration error, 130 interrupted."
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
    """Whether the settings choose full-screen mode; `plain` also turns escape codes off."""
    from hermes.config.dotenv import profile_env
    from hermes.config.loader import load_config

    home = context.home()
    display = load_config(home, profile_env(home.dotenv, context.env)).config.display
    if display.interface == "plain":
        context.disable_escapes()
    return display.interface not in {"cli", "plain"}


def _supports_tui(context: CliContext) -> bool:
    """Whether this is a capable terminal and Textual is installed."""
    streams = (context.stdin, context.stdout, context.stderr)
    if context.env.get("TERM") in {None, "", "dumb"}:
        return False
    if not all(stream.isatty() for stream in streams):
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
    if args.resume and args.continue_session is not None:
        raise UsageError("Use either -c or -r, not both.")


def _prompt(args: Namespace, context: CliContext) -> str | None:
    """The prompt to answer once; None for an interactive chat."""
    given: str | None = args.oneshot if args.oneshot is not None else args.query
    piped = _read_stdin(context, waited_for=given is None)
    once = args.json or args.quiet or args.usage_file
    if given is None and not piped and not args.image:
        if context.stdin.isatty() and not once:
            return None
        raise UsageError("No prompt given.", hint=_EXAMPLE)
    prompt = "\n\n".join(part for part in (decode_argument(given or ""), piped) if part.strip())
    if not prompt and not args.image:
        raise UsageError("The prompt is empty.", hint=_EXAMPLE)
    return prompt


def decode_argument(given: str) -> str:
    """Replace bytes that are not UTF-8 in an argument or a typed line."""
    return given.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_stdin(context: CliContext, *, waited_for: bool) -> str:
    """Read stdin to its end; say so when input takes a while to arrive."""
    stdin = context.stdin
    if stdin.closed or stdin.isatty() or not _has_input(stdin.fileno()):
        return ""
    if not waited_for and not _has_data(stdin.fileno()):
        context.stderr.write("hermes: waiting for the end of stdin (skip it with < /dev/null)\n")
        context.stderr.flush()
    data = stdin.buffer.read(STDIN_LIMIT + 1)
    if len(data) > STDIN_LIMIT:
        raise UsageError(
            "The piped input is larger than 10 MB.",
            hint="Save it to a file and mention the file instead.",
        )
    return data.decode("utf-8", "replace")


def _has_input(fd: int) -> bool:
    """Whether stdin is a pipe, file or socket; anything else (/dev/null) is not read."""
    import os
    import stat

    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _has_data(fd: int) -> bool:
    """Whether data or the end of input arrives within a moment."""
    from select import select

    return bool(select([fd], [], [], STDIN_NOTICE_SECONDS)[0])


def choose_first_model(args: Namespace, context: CliContext) -> None:
    """Run the setup in a new home without a reachable model.

    Raises `UsageError` if no model is chosen.
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

    context.stderr.write(
        "No model configured. Choose one now (change it later with `hermes setup`).\n"
    )
    run_setup(_default_setup_args(), context)


def _has_local_model(context: CliContext) -> bool:
    import anyio

    from hermes.models.discovery import find_local_servers
    from hermes.models.embedded.weights import local_server_under

    return bool(
        local_server_under(context.home().root) or anyio.run(find_local_servers, context.env.get)
    )


def _default_setup_args() -> Namespace:
    """The arguments of `hermes setup` without flags."""
    from hermes.cli.verbs.setup import add_arguments

    parser = ArgumentParser(add_help=False)
    add_arguments(parser)
    return parser.parse_args([])
