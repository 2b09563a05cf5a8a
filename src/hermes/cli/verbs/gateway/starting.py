"""`hermes gateway start`: in the background, by systemd where a service is installed."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from hermes.cli.boundary import complain
from hermes.cli.context import CliContext
from hermes.cli.verbs.gateway.service import Service, installed_service
from hermes.config.home import Home, ensure_home
from hermes.daemon.launch import Failed, gateway_command, launch
from hermes.daemon.lock import AlreadyRunning
from hermes.daemon.standing import look, look_at_all
from hermes.kit.listening import TAKEN


def start(args: Namespace, context: CliContext) -> int:
    home = context.home()
    running = look(home)
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
    return begin(context, home, ["--force"] if args.force else [])


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


def begin(context: CliContext, home: Home, flags: Sequence[str] = ()) -> int:
    """Start a gateway where none runs."""
    service = installed_service(home, context.env)
    if service is not None:
        return _by_systemd(context, home, service)
    return start_detached(context, home, gateway_command(home, *flags))


def start_detached(context: CliContext, home: Home, command: Sequence[str]) -> int:
    def tell(status: str) -> None:
        context.stderr.write(f"  {status}\n")
        if TAKEN in status:
            context.stderr.write("".join(f"  {line}\n" for line in _neighbours(home)))
        context.stderr.flush()

    try:
        launched = launch(home, context.env, command, tell)
    except Failed as error:
        complain(error)
        return error.ended_with
    context.stdout.write(
        f"The gateway of profile {home.profile} is running (pid {launched.pid})\n"
        f"What it does is logged in {home.logs / 'agent.log'}\n"
    )
    return 0


def _neighbours(home: Home) -> Iterator[str]:
    """Gateways of other profiles that listen on this machine, too."""
    for one in look_at_all(home.root):
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


def _by_systemd(context: CliContext, home: Home, service: Service) -> int:
    service.start()
    context.stdout.write(
        f"The gateway of profile {home.profile} is running (pid {service.main_pid}, "
        f"{service.name})\nWhat it does is logged in {home.logs / 'agent.log'}\n"
    )
    return 0
