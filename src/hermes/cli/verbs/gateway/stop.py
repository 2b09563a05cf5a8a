"""`hermes gateway stop` and `restart`: announce the stop, then wait for running turns."""

import signal
from argparse import Namespace

from hermes.app.service.control import StopOptions, open_gateway_process, stop_gateway
from hermes.app.service.lifecycle import STOP_REASON, announce_stop
from hermes.app.service.lock import ProcessRecord
from hermes.app.service.status import GatewayStatus, gateway_status
from hermes.cli.context import CliContext
from hermes.cli.verbs.gateway.service import SystemdService, active_service, service_stop_timeout
from hermes.cli.verbs.gateway.start import start_gateway
from hermes.cli.verbs.gateway.status import background_goals
from hermes.config.home import Home, ensure_home
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import HermesError


def stop(args: Namespace, context: CliContext) -> int:
    home = context.home()
    gateway = _own_gateway(home)
    service = active_service(home, context.env)
    if gateway.record is None and service is None:
        context.stdout.write(f"The gateway of profile {home.profile} is not running\n")
        return 0
    if gateway.record is not None and _is_inside_turn(context):
        return _signal_gateway(context, home, gateway.record, signal.SIGTERM, "stops")
    _stop(context, gateway, service, force=args.force)
    return 0


def restart(args: Namespace, context: CliContext) -> int:
    home = context.home()
    gateway = _own_gateway(home)
    if gateway.record is not None and _is_inside_turn(context):
        return _signal_gateway(context, home, gateway.record, signal.SIGUSR1, "restarts")
    service = active_service(home, context.env)
    if service is not None and not args.force:
        _print_running_work(context, gateway, force=False)
        service.restart()
        context.stdout.write(
            f"The gateway of profile {home.profile} is running again (pid {service.main_pid})\n"
        )
        return 0
    if gateway.record is not None or service is not None:
        _stop(context, gateway, service, force=args.force, reason="restart")
    ensure_home(home)
    return start_gateway(context, home)


def _own_gateway(home: Home) -> GatewayStatus:
    """The gateway's status; raises `HermesError` if another profile's gateway serves this one."""
    gateway = gateway_status(home)
    if gateway.record is not None and gateway.served_by is not None:
        raise HermesError(
            f"Profile {home.profile} is served by the gateway of profile "
            f"{gateway.served_by} (pid {gateway.record.pid})",
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
            raise HermesError(f"The gateway with pid {record.pid} has already stopped")
        if number is signal.SIGTERM:
            announce_stop(home, record, SystemClock().now())
        process.signal(number)
    context.stdout.write(f"The gateway {verb} after this turn\n")
    return 0


def _print_running_work(context: CliContext, gateway: GatewayStatus, *, force: bool) -> None:
    """Show which turns are waited for and which background work is stopped."""
    if gateway.record is None:
        return
    lines: list[str] = []
    turns = gateway.state.active_agents if gateway.state else 0
    if turns and not force:
        lines.append(f"  waiting for {turns} running turn{'s' * (turns != 1)} to end\n")
    goals = background_goals(gateway.home, gateway.record.pid)
    lines += [f"  stopping background work: {single_line(goal)}\n" for goal in goals]
    context.stderr.write("".join(lines))
    context.stderr.flush()


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
        context.stdout.write(f"The gateway of profile {home.profile} stopped\n")
        return
    if record is None:
        return

    def still_waiting() -> None:
        context.stderr.write("  waiting for running turns; press Ctrl+C again to kill it\n")
        context.stderr.flush()

    options = StopOptions(
        timeout=service_stop_timeout(home, context.env),
        force=force,
        reason=reason,
        on_interrupt=still_waiting,
    )
    killed = stop_gateway(home, record, clock, options)
    how = "was killed" if killed else "stopped"
    context.stdout.write(f"The gateway of profile {home.profile} {how} (pid {record.pid})\n")
