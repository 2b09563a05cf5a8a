"""`hermes gateway run`: the gateway in the foreground, started anew when it asks for that."""

import logging
import os
from argparse import Namespace
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TextIO

from hermes.app.service.launcher import gateway_command
from hermes.app.service.options import ExitCode, RunOptions
from hermes.app.service.status import Phase, PlatformState, Snapshot
from hermes.cli.context import CliContext
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home, profile_home
from hermes.kit.redact import Redactor
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.logs.files import FORMAT
from hermes.schema.errors import HermesError, UsageError


def run(args: Namespace, context: CliContext) -> int:
    from hermes.app.service.main import run_gateway
    from hermes.cli.verbs.gateway.foreground import StatusPrinter, log_to_stream

    options = _options(args)
    home = context.home()
    ensure_home(home)
    if options.replace:
        _stop_service(home, context)
    with ExitStack() as stack:
        if options.verbose:
            stack.enter_context(log_to_stream(context.stderr, _redactor(home, context.env)))
        tell = _ignore_snapshot if options.quiet else StatusPrinter(context.stdout, home)
        code = run_gateway(home, context.env, options, tell=tell)
    if code == ExitCode.RESTART and not (args.external_supervisor or _is_supervised(context.env)):
        _restart_in_place(home, context, options)
    return code


def _ignore_snapshot(snapshot: Snapshot) -> None:
    """Whoever wants quiet is told nothing."""


def _redactor(home: Home, env: Env) -> Redactor:
    """Hides the secrets of every profile, for all of them may be served."""
    from hermes.config.dotenv import profile_env
    from hermes.config.loader import load_config
    from hermes.config.masking import secrets_in
    from hermes.config.profiles import profiles_to_serve
    from hermes.config.variables import secret_values

    secrets: list[str] = []
    for name, _ in profiles_to_serve(True, home):
        one = profile_home(home.root, name)
        own = profile_env(one.dotenv, env)
        secrets += secret_values(own)
        with suppress(HermesError):
            secrets += secrets_in(load_config(one, own).raw)
    return Redactor(secrets)


def _options(args: Namespace) -> RunOptions:
    if args.verbose and args.quiet:
        raise UsageError("--verbose and --quiet exclude each other.")
    return RunOptions(
        replace=args.replace,
        force=args.force,
        verbose=args.verbose,
        quiet=args.quiet,
        ready_fd=_open_pipe(args.ready_fd),
    )


def _open_pipe(handle: int | None) -> int | None:
    """After a restart in place the pipe is gone, and with it whoever waited there."""
    if handle is None:
        return None
    try:
        os.fstat(handle)
    except OSError:
        return None
    return handle


def _is_supervised(env: Mapping[str, str]) -> bool:
    """Whether systemd started this very process; shells inherit its other variables."""
    return "NOTIFY_SOCKET" in env or env.get("SYSTEMD_EXEC_PID") == str(os.getpid())


def _stop_service(home: Home, context: CliContext) -> None:
    """A service that is ended from outside would be started again by systemd, beside us."""
    from hermes.cli.verbs.gateway.service import active_service

    service = active_service(home, context.env)
    if service is not None and service.main_pid != os.getpid():
        service.stop()


def _restart_in_place(home: Home, context: CliContext, options: RunOptions) -> None:
    context.stdout.flush()
    context.stderr.flush()
    flags = ["-v"] * options.verbose + (["-q"] if options.quiet else [])
    command = gateway_command(home, *flags)
    os.execve(command[0], command, {**context.env, "HERMES_HOME": str(home.root)})  # noqa: S606 - our own command, no shell


MAX_CHANGE_LINES = 1000
"""Lines about changes; after that only the log tells them, for this may be a file as well."""


class StatusPrinter:
    """Says at first how things are, and then only what has changed."""

    def __init__(self, out: TextIO, home: Home) -> None:
        self._out = out
        self._home = home
        self._told: Mapping[str, str] | None = None
        self._ending = False
        self._left = MAX_CHANGE_LINES

    def __call__(self, snapshot: Snapshot) -> None:
        lines = self._lines(snapshot)
        try:
            self._out.write("".join(f"{line}\n" for line in lines))
            self._out.flush()
        except (OSError, ValueError):
            # Nobody watches any more, and that is no reason to end.
            return

    def _lines(self, snapshot: Snapshot) -> list[str]:
        if snapshot.gateway_state is Phase.DRAINING:
            lines = [] if self._ending else [_stopping_text(snapshot)]
            self._ending = True
            return lines
        now = {
            single_line(name): _platform_text(one)
            for name, one in sorted(snapshot.platforms.items())
        }
        before, self._told = self._told, now
        if before is None:
            return self._greeting(snapshot, now)
        changes = [f"  {name}: {text}" for name, text in now.items() if before.get(name) != text]
        shown = changes[: self._left]
        self._left -= len(shown)
        return shown

    def _greeting(self, snapshot: Snapshot, platforms: Mapping[str, str]) -> list[str]:
        profiles = snapshot.served_profiles or (self._home.profile,)
        word = "profile" if len(profiles) == 1 else "profiles"
        serves = f"The gateway serves the {word} {single_line(', '.join(profiles))}"
        lines = [f"{serves} (pid {os.getpid()}). Ctrl+C stops it."]
        lines += [f"  {name}: {text}" for name, text in platforms.items()]
        if not platforms:
            lines.append("  It listens on no platform, only for `hermes` on this machine.")
        lines.append(f"  What it does is logged in {self._home.logs / 'agent.log'}")
        return lines


def _platform_text(platform: PlatformState) -> str:
    reason = platform.error_message or platform.error_code
    return single_line(f"{platform.state} ({reason})" if reason else platform.state)


def _stopping_text(snapshot: Snapshot) -> str:
    word = "Restarting" if snapshot.restart_requested else "Stopping"
    turns = snapshot.active_agents
    if not turns:
        # A turn of the command line may run all the same.
        return f"{word}; Ctrl+C once more does not wait."
    have = "has" if turns == 1 else "have"
    return (
        f"{word} once {plural(turns, 'running turn')} {have} ended; Ctrl+C once more does not wait."
    )


@contextmanager
def log_to_stream(stream: TextIO, redactor: Redactor) -> Generator[None]:
    """Show the log there as well, as long as the block runs."""
    handler = _RedactedHandler(stream, redactor)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("hermes")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _RedactedHandler(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        super().__init__(stream)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(super().format(record))
