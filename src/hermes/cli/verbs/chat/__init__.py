"""`hermes` and `hermes chat`: chat with the agent, or answer one prompt (`-z`, `-q`)."""

import os
import stat
from argparse import Namespace
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.ipc.client import ConversationOptions
from hermes.schema.errors import ConfigError, UsageError
from hermes.tui.options import DEFAULT_OPTIONS, DisplayOptions

STDIN_LIMIT = 10_000_000
STDIN_NOTICE_SECONDS = 2.0
"""Seconds without input before the wait is announced."""
_EXAMPLE = 'Try: hermes -z "What is this folder?"'


def run(args: Namespace, context: CliContext) -> int:
    """Answer one prompt, or open an interactive chat."""
    if args.oneshot is not None and args.query is not None:
        raise UsageError("Use either -z or -q, not both.")
    if args.plain + args.cli + args.tui > 1:
        raise UsageError("Use only one of --plain, --cli and --tui.")
    if args.resume and args.continue_session is not None:
        raise UsageError("Use either -c or -r, not both.")
    if args.plain:
        context.disable_escapes()
    if args.accept_hooks:
        from hermes.cli.verbs.hooks import accept_hooks

        accept_hooks(context)
    prompt = _prompt(args, context)
    if context.home().legacy_database.exists() and context.stderr.isatty():
        _import_sessions(context)
    if prompt is None:
        _choose_first_model(args, context)
        if _wants_tui(args, context):
            from hermes.cli.verbs.chat.full_screen import run_chat
        else:
            from hermes.cli.verbs.chat.interactive import run_chat
        return run_chat(args, context)
    from hermes.cli.verbs.chat.oneshot import run_oneshot

    return run_oneshot(args, prompt, context)


def _import_sessions(context: CliContext) -> None:
    """Show the progress of a first import; without a terminal it runs when the agent is opened."""
    import anyio

    from hermes.app.storage import import_public_sessions, open_archive
    from hermes.cli.import_progress import ImportProgress
    from hermes.kit.clock import SystemClock

    async def import_new() -> None:
        async with open_archive(context.home(), SystemClock()) as store:
            await import_public_sessions(store, context.home(), ImportProgress(context))

    anyio.run(import_new)


def _wants_tui(args: Namespace, context: CliContext) -> bool:
    """Whether full-screen mode is chosen; the setting `plain` also turns escape codes off."""
    if args.plain or args.cli:
        return False
    if not args.tui:
        interface = context.load_config().config.display.interface
        if interface == "plain":
            context.disable_escapes()
        if interface in {"cli", "plain"}:
            return False
    return _supports_tui(context)


def _supports_tui(context: CliContext) -> bool:
    """Whether this is a capable terminal and Textual is installed."""
    from importlib.util import find_spec

    streams = (context.stdin, context.stdout, context.stderr)
    if context.env.get("TERM", "") in {"", "dumb"} or not all(
        stream.isatty() for stream in streams
    ):
        return False
    return find_spec("textual") is not None


def _prompt(args: Namespace, context: CliContext) -> str | None:
    """The prompt to answer once; None for an interactive chat."""
    argument: str | None = args.oneshot if args.oneshot is not None else args.query
    piped = _read_stdin(context, waited_for=argument is None)
    once = args.json or args.quiet or args.usage_file
    if argument is None and not piped and not args.image:
        if context.stdin.isatty() and not once:
            return None
        raise UsageError("No prompt given.", hint=_EXAMPLE)
    prompt = "\n\n".join(part for part in (decode_argument(argument or ""), piped) if part.strip())
    if not prompt and not args.image:
        raise UsageError("The prompt is empty.", hint=_EXAMPLE)
    return prompt


def decode_argument(text: str) -> str:
    """Replace bytes that are not UTF-8 in an argument or a typed line."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_stdin(context: CliContext, *, waited_for: bool) -> str:
    """Read stdin to its end; say so when input takes a while to arrive."""
    stdin = context.stdin
    if stdin.closed or stdin.isatty():
        return ""
    mode = os.fstat(stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""  # such as /dev/null
    if not waited_for and not _has_data(stdin.fileno()):
        context.note("hermes: waiting for the end of stdin (skip it with < /dev/null)")
    data = stdin.buffer.read(STDIN_LIMIT + 1)
    if len(data) > STDIN_LIMIT:
        raise UsageError(
            "The piped input is larger than 10 MB.",
            hint="Save it to a file and mention the file instead.",
        )
    return data.decode("utf-8", "replace")


def _has_data(fd: int) -> bool:
    """Whether data or the end of input arrives within a moment."""
    from select import select

    return bool(select([fd], [], [], STDIN_NOTICE_SECONDS)[0])


def _choose_first_model(args: Namespace, context: CliContext) -> None:
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
    from hermes.cli.arguments import build_parser
    from hermes.cli.verbs import setup

    context.note("No model configured. Choose one now (change it later with `hermes setup`).")
    setup.set_up(build_parser("setup").parse_args([]), context)


def _has_local_model(context: CliContext) -> bool:
    import anyio

    from hermes.models.discovery import find_local_servers
    from hermes.models.embedded.weights import local_server_under

    root = context.home().root
    return bool(local_server_under(root) or anyio.run(find_local_servers, context.env.get))


def conversation_options(args: Namespace) -> ConversationOptions:
    """Raises `UsageError` if the agent's working directory does not exist."""
    try:
        folder = Path(args.cwd).expanduser() if args.cwd else Path.cwd()
    except (FileNotFoundError, RuntimeError) as error:
        raise UsageError(
            "The working directory no longer exists.", hint="Change to another one: cd"
        ) from error
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", hint="Pass an existing folder to --cwd.")
    toolsets = (name.strip() for name in decode_argument(args.toolsets or "").split(","))
    return ConversationOptions(
        cwd=str(folder.resolve()),
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
