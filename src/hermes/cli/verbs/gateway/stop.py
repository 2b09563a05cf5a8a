"""`hermes gateway stop` and `restart`: meant by a person, so told to the gateway beforehand."""

import signal
from argparse import Namespace

from hermes.app.service.control import StopOptions, open_process, stop_gateway
from hermes.app.service.lock import ProcessRecord
from hermes.app.service.shutdown_markers import STOP, announce_stop
from hermes.app.service.status import GatewayStatus, gateway_status
from hermes.cli.context import CliContext
from hermes.cli.verbs.gateway.deep_status import background_goals
from hermes.cli.verbs.gateway.service import SystemdService, active_service, service_stop_timeout
from hermes.cli.verbs.gateway.start import start_gateway
from hermes.config.home import Home, ensure_home
from hermes.kit.clock import SystemClock
from hermes.kit.terminal_text import single_line
from hermes.schema.errors import HermesError


def stop(args: Namespace, context: CliContext) -> int:
    home = context.home()
    standing = _own_gateway(home)
    service = active_service(home, context.env)
    if standing.record is None and service is None:
        context.stdout.write(f"The gateway of profile {home.profile} does not run\n")
        return 0
    if standing.record is not None and _is_inside_turn(context):
        return _signal_gateway(context, home, standing.record, signal.SIGTERM, "stops")
    _stop(context, standing, service, force=args.force)
    return 0


def restart(args: Namespace, context: CliContext) -> int:
    home = context.home()
    standing = _own_gateway(home)
    if standing.record is not None and _is_inside_turn(context):
        return _signal_gateway(context, home, standing.record, signal.SIGUSR1, "restarts")
    service = active_service(home, context.env)
    if service is not None and not args.force:
        _print_running_work(context, standing, force=False)
        service.restart()
        context.stdout.write(
            f"The gateway of profile {home.profile} is running again (pid {service.main_pid})\n"
        )
        return 0
    if standing.record is not None or service is not None:
        _stop(context, standing, service, force=args.force, reason="restart")
    ensure_home(home)
    return start_gateway(context, home)


def _own_gateway(home: Home) -> GatewayStatus:
    """Raises `HermesError` when another profile's gateway serves this home: it is not ours."""
    standing = gateway_status(home)
    if standing.record is not None and standing.served_by is not None:
        raise HermesError(
            f"Profile {home.profile} has no gateway of its own; that of profile "
            f"{standing.served_by} serves it (pid {standing.record.pid})",
            hint="It is stopped and restarted for all its profiles together, with: hermes -p "
            f"{standing.served_by} gateway stop (or restart)",
        )
    return standing


def _is_inside_turn(context: CliContext) -> bool:
    """The gateway waits for its turns, so a turn must not wait for the gateway."""
    return bool(context.env.get("HERMES_SESSION_ID"))


def _signal_gateway(
    context: CliContext, home: Home, record: ProcessRecord, number: signal.Signals, verb: str
) -> int:
    with open_process(record) as process:
        if process is None:
            raise HermesError(f"The gateway with pid {record.pid} has ended meanwhile")
        if number is signal.SIGTERM:
            announce_stop(home, record, SystemClock().now())
        process.signal(number)
    context.stdout.write(f"The gateway {verb} once this turn is over\n")
    return 0


def _print_running_work(context: CliContext, standing: GatewayStatus, *, force: bool) -> None:
    """What is waited for, and what is not."""
    if standing.record is None:
        return
    lines: list[str] = []
    turns = standing.state.active_agents if standing.state else 0
    if turns and not force:
        lines.append(f"  waiting for {turns} running turn{'s' * (turns != 1)} to end\n")
    goals = background_goals(standing.home, standing.record.pid)
    lines += [f"  this ends work in the background: {single_line(one)}\n" for one in goals]
    context.stderr.write("".join(lines))
    context.stderr.flush()


def _stop(
    context: CliContext,
    standing: GatewayStatus,
    service: SystemdService | None,
    *,
    force: bool,
    reason: str = STOP,
) -> None:
    home, record, clock = standing.home, standing.record, SystemClock()
    _print_running_work(context, standing, force=force)
    if service is not None:
        if record is not None:
            announce_stop(home, record, clock.now(), reason)
        if force:
            service.kill()
        service.stop()
        context.stdout.write(f"The gateway of profile {home.profile} is stopped\n")
        return
    if record is None:
        return

    def impatient() -> None:
        context.stderr.write("  still letting turns end; Ctrl+C once more ends it at once\n")
        context.stderr.flush()

    manner = StopOptions(
        patience=service_stop_timeout(home, context.env),
        force=force,
        reason=reason,
        impatient=impatient,
    )
    killed = stop_gateway(home, record, clock, manner)
    how = "was killed" if killed else "is stopped"
    context.stdout.write(f"The gateway of profile {home.profile} {how} (pid {record.pid})\n")
