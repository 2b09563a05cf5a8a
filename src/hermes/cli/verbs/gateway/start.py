"""`hermes gateway start`: in the background, by systemd where a service is installed."""

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
from hermes.kit.listen_errors import ADDRESS_IN_USE


def start(args: Namespace, context: CliContext) -> int:
    home = context.home()
    running = gateway_status(home)
    if running.record is not None:
        if running.served_by is not None:
            raise AlreadyRunning(home, running.record)
        context.stdout.write(
            f"The gateway of profile {home.profile} runs already (pid {running.record.pid})\n"
        )
        if changed := _changed_since(home, running.record.started_at):
            context.stdout.write(
                f"{', '.join(changed)} changed since it started; "
                "to use what is there now: hermes gateway restart\n"
            )
        return 0
    ensure_home(home)
    return start_gateway(context, home, ["--force"] if args.force else [])


def _changed_since(home: Home, started: datetime | None) -> list[str]:
    """Names of the files with settings and keys that the gateway has not read as they are now."""
    if started is None:
        return []
    changed: list[str] = []
    for file in (home.config, home.dotenv, home.auth):
        with suppress(OSError):
            if file.stat().st_mtime > started.timestamp():
                changed.append(file.name)
    return changed


def start_gateway(context: CliContext, home: Home, flags: Sequence[str] = ()) -> int:
    """Start a gateway where none runs."""
    service = installed_service(home, context.env)
    if service is not None:
        return _start_service(context, home, service)
    return start_detached(context, home, gateway_command(home, *flags))


def start_detached(context: CliContext, home: Home, command: Sequence[str]) -> int:
    def tell(status: str) -> None:
        context.stderr.write(f"  {status}\n")
        if ADDRESS_IN_USE in status:
            context.stderr.write("".join(f"  {line}\n" for line in _other_gateways(home)))
        context.stderr.flush()

    try:
        launched = launch(home, context.env, command, tell)
    except LaunchFailed as error:
        print_error(error)
        return error.ended_with
    context.stdout.write(
        f"The gateway of profile {home.profile} is running (pid {launched.pid})\n"
        f"What it does is logged in {home.logs / 'agent.log'}\n"
    )
    return 0


def _other_gateways(home: Home) -> Iterator[str]:
    """Gateways of other profiles that listen on this machine, too."""
    for one in all_gateway_statuses(home.root):
        there = sorted(name for name, state in one.platforms.items() if state.state != "fatal")
        if (
            one.record is not None
            and one.served_by is None
            and one.home.path != home.path
            and there
        ):
            yield (
                f"The gateway of profile {one.home.profile} (pid {one.record.pid}) serves "
                f"{', '.join(there)}: each gateway needs ports of its own."
            )


def _start_service(context: CliContext, home: Home, service: SystemdService) -> int:
    service.start()
    context.stdout.write(
        f"The gateway of profile {home.profile} is running (pid {service.main_pid}, "
        f"{service.name})\nWhat it does is logged in {home.logs / 'agent.log'}\n"
    )
    return 0
