"""`hermes gateway run`: the gateway in the foreground, started anew when it asks for that."""

import os
from argparse import Namespace
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from hermes.cli.context import CliContext
from hermes.config.env import Env
from hermes.config.home import Home, ensure_home, home_of
from hermes.daemon.launch import gateway_command
from hermes.daemon.options import ExitCode, RunOptions
from hermes.daemon.state import Snapshot
from hermes.kit.redact import Redactor
from hermes.schema.errors import HermesError, UsageError


def run(args: Namespace, context: CliContext) -> int:
    from hermes.cli.verbs.gateway.foreground import Foreground, logging_to
    from hermes.daemon.process import run_gateway

    options = _options(args)
    home = context.home()
    ensure_home(home)
    if options.replace:
        _stop_service(home, context)
    with ExitStack() as stack:
        if options.verbose:
            stack.enter_context(logging_to(context.stderr, _redactor(home, context.env)))
        tell = _nothing if options.quiet else Foreground(context.stdout, home)
        code = run_gateway(home, context.env, options, tell=tell)
    if code == ExitCode.RESTART and not (args.external_supervisor or _is_supervised(context.env)):
        _start_anew(home, context, options)
    return code


def _nothing(snapshot: Snapshot) -> None:
    """Whoever wants quiet is told nothing."""


def _redactor(home: Home, env: Env) -> Redactor:
    """Hides the secrets of every profile, for all of them may be served."""
    from hermes.config.dotenv import env_of
    from hermes.config.load import load_config
    from hermes.config.masking import secrets_in
    from hermes.config.profiles import profiles_to_serve
    from hermes.config.variables import secret_values

    secrets: list[str] = []
    for name, _ in profiles_to_serve(True, home):
        one = home_of(home.root, name)
        own = env_of(one.dotenv, env)
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


def _start_anew(home: Home, context: CliContext, options: RunOptions) -> None:
    context.stdout.flush()
    context.stderr.flush()
    flags = ["-v"] * options.verbose + (["-q"] if options.quiet else [])
    command = gateway_command(home, *flags)
    os.execve(command[0], command, {**context.env, "HERMES_HOME": str(home.root)})  # noqa: S606 - our own command, no shell
