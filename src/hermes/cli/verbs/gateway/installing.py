"""`hermes gateway install` and `uninstall`: a service of the user, started with their session."""

from argparse import Namespace

from hermes.cli.context import CliContext
from hermes.cli.verbs.gateway.service import Service, drain_of, installed_service, patience
from hermes.config.home import ensure_home
from hermes.daemon.launch import gateway_command
from hermes.daemon.standing import look
from hermes.daemon.systemd import (
    Systemctl,
    Unit,
    install_unit,
    make_unit,
    serves_home,
    unit_path,
)
from hermes.schema.errors import UsageError


def install(args: Namespace, context: CliContext) -> int:
    home, env = context.home(), context.env
    unit = make_unit(home, env, gateway_command(home), drain_of(home, env))
    if args.print:
        context.stdout.write(unit.text)
        return 0
    ensure_home(home)
    changed = install_unit(unit, home, force=args.force)
    context.stdout.write(f"{unit.path} is {'written' if changed else 'up to date'}\n")
    systemctl = Systemctl(env)
    if not systemctl.works():
        return _by_hand(context, unit)
    systemctl.must("daemon-reload")
    systemctl.must("enable", unit.name)
    if args.start:
        return _start(context, Service(home, env, systemctl))
    context.stdout.write(
        f"{unit.name} starts with your session from now on; start it now with: hermes gateway "
        "start\nTo let it run while you are logged out: loginctl enable-linger\n"
    )
    return 0


def _start(context: CliContext, service: Service) -> int:
    running = look(context.home()).record
    if running is not None and running.pid != service.main_pid:
        raise UsageError(
            f"A gateway runs already that is not the service (pid {running.pid})",
            hint="Stop it with `hermes gateway stop`, then: hermes gateway start",
        )
    service.restart()
    context.stdout.write(
        f"{service.name} runs (pid {service.main_pid}) and starts with your session\n"
        "To let it run while you are logged out: loginctl enable-linger\n"
    )
    return 0


def _by_hand(context: CliContext, unit: Unit) -> int:
    context.stdout.write(
        "systemd does not answer here. Where it does, run:\n"
        "  systemctl --user daemon-reload\n"
        f"  systemctl --user enable --now {unit.name}\n"
        "Without systemd, `hermes gateway start` runs it in the background.\n"
    )
    return 0


def uninstall(args: Namespace, context: CliContext) -> int:
    home, env = context.home(), context.env
    path = unit_path(home, env)
    if not path.exists():
        context.stdout.write(f"No service is installed for profile {home.profile}\n")
        return 0
    if not serves_home(home, env):
        raise UsageError(
            f"{path} is the service of another home", hint="Remove it from there, or by hand."
        )
    service = installed_service(home, env)
    systemctl = Systemctl(env)
    if service is not None:
        systemctl.must("disable", "--now", service.name, patience=patience(home, env) + 30)
    path.unlink()
    if service is not None:
        systemctl.must("daemon-reload")
    context.stdout.write(f"{path} is removed\n")
    return 0
