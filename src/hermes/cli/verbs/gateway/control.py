"""`hermes gateway start`, `stop` and `restart`; a stop waits for running turns."""

import signal
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial

from hermes.app.service.control import StopOptions, open_gateway_process, stop_gateway
from hermes.app.service.launcher import LaunchFailed, gateway_command, launch
from hermes.app.service.lifecycle import STOP_REASON, announce_stop
from hermes.app.service.lock import AlreadyRunning, ProcessRecord
from hermes.app.service.status import GatewayStatus, all_gateway_statuses, gateway_status
from hermes.cli.boundary import print_error
from hermes.cli.context import CliContext
from hermes.cli.verbs.gateway.service import (
    SystemdService,
    active_service,
    installed_service,
    service_stop_timeout,
)
from hermes.cli.verbs.gateway.status import background_goals, changed_settings
from hermes.config.home import Home, ensure_home
from hermes.kit.clock import SystemClock
from hermes.kit.http_server import ADDRESS_IN_USE
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.schema.errors import ConfigError, HermesError


def start(args: Namespace, context: CliContext) -> int:
    home = context.home()
    running = gateway_status(home)
    if running.record is not None:
        if running.served_by is not None:
            raise AlreadyRunning(home, running.record)
        pid = running.record.pid
        context.print(f"The gateway of profile {home.profile} is already running (pid {pid})")
        if changed := changed_settings(home, running.record, context.env, logins=True):
            context.print(changed)
        return 0
    ensure_home(home)
    return _start(context, home, ["--force"] if args.force else [])


def _start(context: CliContext, home: Home, flags: Sequence[str] = ()) -> int:
    """Start the service if it is installed; without one, start a detached process."""

    def print_status(status: str) -> None:
        context.note(f"  {status}")
        for line in _other_gateways(home) if ADDRESS_IN_USE in status else ():
            context.note(f"  {line}")

    service = installed_service(home, context.env)
    if service is not None:
        service.start()
        process = f"pid {service.main_pid}, {service.name}"
    else:
        command = gateway_command(home, *flags)
        try:
            process = f"pid {launch(home, context.env, command, print_status).pid}"
        except LaunchFailed as error:
            print_error(error)
            return error.ended_with
    context.print(
        f"The gateway of profile {home.profile} is running ({process})\n"
        f"Log: {home.logs / 'agent.log'}"
    )
    return 0


def _other_gateways(home: Home) -> Iterator[str]:
    """Gateways of other profiles on this machine that may occupy the port."""
    for other in all_gateway_statuses(home.root):
        served = sorted(name for name, state in other.platforms.items() if state.state != "fatal")
        own = other.home.path == home.path
        if other.record is not None and other.served_by is None and served and not own:
            yield (
                f"The gateway of profile {other.home.profile} (pid {other.record.pid}) serves "
                f"{', '.join(served)}: each gateway needs its own ports."
            )


def stop(args: Namespace, context: CliContext) -> int:
    home = context.home()
    gateway = _own_gateway(home)
    service = active_service(home, context.env)
    if gateway.record is None and service is None:
        context.print(f"The gateway of profile {home.profile} is not running")
        return 0
    if gateway.record is not None and _is_inside_turn(context):
        return _signal_gateway(context, home, gateway.record, signal.SIGTERM, "stops")
    _stop(context, gateway, service, force=args.force)
    return 0


def restart(args: Namespace, context: CliContext) -> int:
    home = context.home()
    gateway = _own_gateway(home)
    _check_settings(context)
    if gateway.record is not None and _is_inside_turn(context):
        return _signal_gateway(context, home, gateway.record, signal.SIGUSR1, "restarts")
    service = active_service(home, context.env)
    if service is not None and not args.force:
        _print_running_work(context, gateway, force=False)
        service.restart()
        pid = service.main_pid
        context.print(f"The gateway of profile {home.profile} is running again (pid {pid})")
        return 0
    if gateway.record is not None or service is not None:
        _stop(context, gateway, service, force=args.force, reason="restart")
    ensure_home(home)
    return _start(context, home)


def _check_settings(context: CliContext) -> None:
    """Raise `ConfigError` before the gateway is stopped: it could not start again."""
    try:
        context.load_config()
    except ConfigError:
        context.note("The gateway was not restarted.")
        raise


def _own_gateway(home: Home) -> GatewayStatus:
    """The gateway's status; raises `HermesError` if another profile's gateway serves this one."""
    gateway = gateway_status(home)
    if gateway.record is not None and gateway.served_by is not None:
        raise HermesError(
            f"Profile {home.profile} is served by the gateway of profile "
            f"{gateway.served_by} (pid {gateway.record.pid}).",
            hint="To stop or restart it for all its profiles: hermes -p "
            f"{gateway.served_by} gateway stop (or restart)",
        )
    return gateway


def _is_inside_turn(context: CliContext) -> bool:
    """Whether the agent runs this command: waiting for the gateway would then deadlock."""
    return bool(context.env.get("HERMES_SESSION_ID"))


def _signal_gateway(
    context: CliContext, home: Home, record: ProcessRecord, number: signal.Signals, verb: str
) -> int:
    with open_gateway_process(record) as process:
        if process is None:
            raise HermesError(f"The gateway with pid {record.pid} has already stopped.")
        if number is signal.SIGTERM:
            announce_stop(home, record, SystemClock().now())
        process.signal(number)
    context.print(f"The gateway {verb} after this turn")
    return 0


def _print_running_work(context: CliContext, gateway: GatewayStatus, *, force: bool) -> None:
    """Show which turns are waited for and which background work is stopped."""
    if gateway.record is None:
        return
    turns = gateway.state.active_agents if gateway.state else 0
    if turns and not force:
        context.note(f"  waiting for {plural(turns, 'running turn')} to end")
    for goal in background_goals(gateway.home, gateway.record.pid):
        context.note(f"  stopping background work: {single_line(goal)}")


def _stop(
    context: CliContext,
    gateway: GatewayStatus,
    service: SystemdService | None,
    *,
    force: bool,
    reason: str = STOP_REASON,
) -> None:
    home, record, clock = gateway.home, gateway.record, SystemClock()
    _print_running_work(context, gateway, force=force)
    if service is not None:
        if record is not None:
            announce_stop(home, record, clock.now(), reason)
        if force:
            service.kill()
        service.stop()
        context.print(f"The gateway of profile {home.profile} stopped")
        return
    if record is None:
        return
    still_waiting = "  waiting for running turns; press Ctrl+C again to kill it"
    options = StopOptions(
        timeout=service_stop_timeout(home, context.env),
        force=force,
        reason=reason,
        on_interrupt=partial(context.note, still_waiting),
    )
    killed = stop_gateway(home, record, clock, options)
    how = "was killed" if killed else "stopped"
    context.print(f"The gateway of profile {home.profile} {how} (pid {record.pid})")
