"""`hermes gateway run`: run the gateway in the foreground and restart it on request."""

import logging
import os
from argparse import Namespace
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import StringIO
from typing import TextIO

from hermes.app.service.launcher import gateway_command
from hermes.app.service.lifecycle import ExitCode, RunOptions
from hermes.app.service.status import Phase, PlatformState, Snapshot
from hermes.cli.context import CliContext
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home, profile_home
from hermes.kit.redact import Redactor
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.logs import FORMAT
from hermes.schema.errors import HermesError, UsageError


def run(args: Namespace, context: CliContext) -> int:
    from hermes.app.service.main import run_gateway

    options = _options(args)
    home = context.home()
    ensure_home(home)
    if options.replace:
        context.load_config()  # with wrong settings nothing could replace the service
        _stop_service(home, context)
    with ExitStack() as stack:
        if options.verbose:
            stack.enter_context(log_to_stream(context.stderr, _redactor(home, context.env)))
        out = StringIO() if options.quiet else context.stdout
        code = run_gateway(home, context.env, options, on_snapshot=StatusPrinter(out, home))
    if code == ExitCode.RESTART and not (args.external_supervisor or _is_supervised(context.env)):
        _restart_in_place(home, context, options)
    return code


def _redactor(home: Home, env: Env) -> Redactor:
    """A redactor for the secrets of all profiles that may be served."""
    from hermes.config.env import profile_env
    from hermes.config.loader import load_config
    from hermes.config.profiles import profiles_to_serve
    from hermes.config.variables import secret_values, secrets_in

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
        raise UsageError("--verbose and --quiet cannot be used together.")
    return RunOptions(
        replace=args.replace,
        force=args.force,
        verbose=args.verbose,
        quiet=args.quiet,
        ready_fd=_if_open(args.ready_fd),
    )


def _if_open(handle: int | None) -> int | None:
    """The descriptor if it is still open; after an in-place restart it is closed."""
    with suppress(OSError):
        if handle is not None:
            os.fstat(handle)
            return handle
    return None


def _is_supervised(env: Mapping[str, str]) -> bool:
    """Whether systemd started this process; its other variables are inherited by shells."""
    return "NOTIFY_SOCKET" in env or env.get("SYSTEMD_EXEC_PID") == str(os.getpid())


def _stop_service(home: Home, context: CliContext) -> None:
    """Stop the service through systemd, which would otherwise restart it."""
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
"""Status lines to print before only the log reports changes; stdout may be a file."""


class StatusPrinter:
    """Prints the full status once and then only changes."""

    def __init__(self, out: TextIO, home: Home) -> None:
        self._out = out
        self._home = home
        self._printed: Mapping[str, str] | None = None
        self._stopping = False
        self._lines_left = MAX_CHANGE_LINES

    def __call__(self, snapshot: Snapshot) -> None:
        lines = self._lines(snapshot)
        # The gateway keeps running when its terminal is gone.
        with suppress(OSError, ValueError):
            self._out.write("".join(f"{line}\n" for line in lines))
            self._out.flush()

    def _lines(self, snapshot: Snapshot) -> list[str]:
        if snapshot.gateway_state is Phase.DRAINING:
            lines = [] if self._stopping else [_stopping_text(snapshot)]
            self._stopping = True
            return lines
        now = {
            single_line(name): _platform_text(platform)
            for name, platform in sorted(snapshot.platforms.items())
        }
        before, self._printed = self._printed, now
        if before is None:
            return self._greeting(snapshot, now)
        changes = [f"  {name}: {text}" for name, text in now.items() if before.get(name) != text]
        shown = changes[: self._lines_left]
        self._lines_left -= len(shown)
        return shown

    def _greeting(self, snapshot: Snapshot, platforms: Mapping[str, str]) -> list[str]:
        profiles = snapshot.served_profiles or (self._home.profile,)
        word = "profile" if len(profiles) == 1 else "profiles"
        names = single_line(", ".join(profiles))
        lines = [f"Gateway running for {word} {names} (pid {os.getpid()}). Ctrl+C stops it."]
        lines += [f"  {name}: {text}" for name, text in platforms.items()]
        if not platforms:
            lines.append("  No platforms enabled; only `hermes` on this machine can connect.")
        lines.append(f"  Log: {self._home.logs / 'agent.log'}")
        return lines


def _platform_text(platform: PlatformState) -> str:
    reason = platform.error_message or platform.error_code or platform.address
    return single_line(f"{platform.state} ({reason})" if reason else platform.state)


def _stopping_text(snapshot: Snapshot) -> str:
    word = "Restarting" if snapshot.restart_requested else "Stopping"
    turns = snapshot.active_agents
    # Turns from the command line are not counted, so the wait may still take a while.
    after = f" after {plural(turns, 'running turn')}" if turns else ""
    return f"{word}{after}; press Ctrl+C again to stop immediately."


@contextmanager
def log_to_stream(stream: TextIO, redactor: Redactor) -> Generator[None]:
    """Also write the log to the stream, with secrets redacted."""
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
