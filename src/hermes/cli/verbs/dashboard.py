"""`hermes dashboard`: print a login link, and serve the dashboard if it is not running."""

import os
import signal
import webbrowser
from argparse import Namespace
from getpass import getpass

import anyio

from hermes.cli.context import CliContext
from hermes.config.editor import change_settings
from hermes.config.home import Home, ensure_home
from hermes.kit.clock import SystemClock
from hermes.schema.errors import UsageError
from hermes.web.logins import Logins
from hermes.web.passwords import hash_password
from hermes.web.server_state import ServerState, running_server, web_folder
from hermes.web.standalone import serve_page

NOT_RUNNING = 3
MIN_PASSWORD = 10


def run(args: Namespace, context: CliContext) -> int:
    home = context.home()
    if args.set_password is not None:
        return _set_password(args.set_password, home, context)
    record = running_server(home)
    if args.status:
        return _print_status(record, context)
    if args.stop:
        return _stop(record, context)
    ensure_home(home)
    if record is not None:
        if args.host or args.port is not None:
            raise UsageError(
                f"The dashboard is already running at {record.address}.",
                hint="Stop it first: hermes dashboard --stop",
            )
        _invite(record.address, home, context, open_browser=not args.no_open)
        return 0

    def ready(address: str) -> None:
        _invite(address, home, context, open_browser=not args.no_open)
        context.print("Ctrl+C stops it.")
        context.stdout.flush()

    async def serve() -> None:
        await serve_page(home, context.env, host=args.host or "", port=args.port, ready=ready)

    anyio.run(serve)
    if context.stdout.isatty():
        context.print("")  # the terminal has shown ^C
    return 0


def _invite(address: str, home: Home, context: CliContext, *, open_browser: bool) -> None:
    token = Logins(web_folder(home), SystemClock()).new_link()
    link = f"{address}/login#{token}"
    context.print(f"The dashboard is running at {address}")
    context.print(f"Log in with this link; it works once, for 15 minutes:\n  {link}")
    if open_browser and (context.env.get("DISPLAY") or context.env.get("WAYLAND_DISPLAY")):
        webbrowser.open(link)


def _print_status(record: ServerState | None, context: CliContext) -> int:
    if record is None:
        context.print("The dashboard is not running.")
        return NOT_RUNNING
    context.print(f"The dashboard is running at {record.address} ({record.by}, pid {record.pid}).")
    return 0


def _stop(record: ServerState | None, context: CliContext) -> int:
    if record is None:
        context.print("The dashboard is not running.")
        return NOT_RUNNING
    if record.by == "gateway":
        raise UsageError(
            "The gateway serves the dashboard.",
            hint="To stop that: hermes config set dashboard.enabled false, then "
            "hermes gateway restart",
        )
    os.kill(record.pid, signal.SIGTERM)
    context.print(f"Stopping the dashboard at {record.address}; running turns are completed first.")
    return 0


def _set_password(username: str, home: Home, context: CliContext) -> int:
    typed = getpass("Password: ") if context.stdin.isatty() else context.stdin.readline()
    password = typed.rstrip("\n")
    if len(password) < MIN_PASSWORD:
        raise UsageError(f"The password needs at least {MIN_PASSWORD} characters.")
    if not username.strip():
        raise UsageError("The user name is empty.")
    ensure_home(home)
    values = {
        "dashboard.basic_auth.username": username,
        "dashboard.basic_auth.password_hash": hash_password(password),
    }
    change_settings(home, context.profile_env(), lambda _: values)
    context.print("Saved. It takes effect when the dashboard is started again.")
    return 0
