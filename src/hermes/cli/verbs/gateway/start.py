"""`hermes gateway start`: start it in the background, or its service if installed."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from hermes.app.service.launcher import LaunchFailed, gateway_command, launch
from hermes.app.service.lock import AlreadyRunning
from hermes.app.service.status import all_gateway_statuses, gateway_status
from hermes.cli.boundary import print_error
from hermes.cli.context import CliContext
from hermes.cli.verbs.gateway.service import SystemdService, installed_service
from hermes.config.home import Home, ensure_home
from hermes.kit.http_server import ADDRESS_IN_USE


def start(args: Namespace, context: CliContext) -> int:
    home = context.home()
    running = gateway_status(home)
    if running.record is not None:
        if running.served_by is not None:
            raise AlreadyRunning(home, running.record)
        context.stdout.write(
            f"The gateway of profile {home.profile} is already running (pid {running.record.pid})\n"
        )
        if changed := _changed_since(home, running.record.started_at):
            context.stdout.write(
                f"{', '.join(changed)} changed since it started. "
                "To apply the changes: hermes gateway restart\n"
            )
        return 0
    ensure_home(home)
    return start_gateway(context, home, ["--force"] if args.force else [])


def _changed_since(home: Home, started: datetime | None) -> list[str]:
    """Names of the settings and key files that changed since the gateway started."""
    if started is None:
        return []
    changed: list[str] = []
    for file in (home.config, home.dotenv, home.auth):
        with suppress(OSError):
            if file.stat().st_mtime > started.timestamp():
                changed.append(file.name)
    return changed


def start_gateway(context: CliContext, home: Home, flags: Sequence[str] = ()) -> int:
    """Start the service if installed, a detached process otherwise."""
    service = installed_service(home, context.env)
    if service is not None:
        return _start_service(context, home, service)
    return start_detached(context, home, gateway_command(home, *flags))


def start_detached(context: CliContext, home: Home, command: Sequence[str]) -> int:
    def print_status(status: str) -> None:
        context.stderr.write(f"  {status}\n")
        if ADDRESS_IN_USE in status:
            context.stderr.write("".join(f"  {line}\n" for line in _other_gateways(home)))
        context.stderr.flush()

    try:
        launched = launch(home, context.env, command, print_status)
    except LaunchFailed as error:
        print_error(error)
        return error.ended_with
    context.stdout.write(
        f"The gateway of profile {home.profile} is running (pid {launched.pid})\n"
        f"Log: {home.logs / 'agent.log'}\n"
    )
    return 0


def _other_gateways(home: Home) -> Iterator[str]:
    """Gateways of other profiles on this machine that may occupy the port."""
    for other in all_gateway_statuses(home.root):
        served = sorted(name for name, state in other.platforms.items() if state.state != "fatal")
        if (
            other.record is not None
            and other.served_by is None
            and other.home.path != home.path
            and served
        ):
            yield (
                f"The gateway of profile {other.home.profile} (pid {other.record.pid}) serves "
                f"{', '.join(served)}: each gateway needs its own ports."
            )


def _start_service(context: CliContext, home: Home, service: SystemdService) -> int:
    service.start()
    context.stdout.write(
        f"The gateway of profile {home.profile} is running (pid {service.main_pid}, "
        f"{service.name})\nLog: {home.logs / 'agent.log'}\n"
    )
    return 0
