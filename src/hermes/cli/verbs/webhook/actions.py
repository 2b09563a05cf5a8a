"""The actions of `hermes webhook`: subscribe, list, remove and test routes."""

import secrets
from argparse import Namespace
from collections.abc import Mapping
from urllib.parse import quote

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.channels.webhook.routes import (
    INSECURE,
    Route,
    WebhookSettings,
    read_route,
    read_settings,
)
from hermes.channels.webhook.signatures import Scheme, sign
from hermes.channels.webhook.subscriptions import Subscriptions, Table, subscribed_routes
from hermes.cli.context import CliContext
from hermes.config.dotenv import profile_env
from hermes.config.home import DEFAULT_PROFILE, Home, profile_home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.config.sections.messaging import Platform
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.redact import MASK
from hermes.kit.terminal_text import escape_controls, single_line
from hermes.schema.errors import ConfigError, HermesError, UsageError

_EXAMPLE = "Test call from `hermes webhook test`."
_ACCEPTED = 202
_TRUE_VALUES = frozenset({"1", "true", "yes", "on"})


class _RouteRow(Struct):
    """A route as `--json` prints it."""

    name: str
    url: str
    source: str
    state: str
    events: list[str]
    deliver: str
    deliver_only: bool
    description: str
    signature: str
    secret: str = MASK
    problems: list[str] = []


class _WebhookAction:
    """The routes of a home and their URLs."""

    def __init__(self, context: CliContext) -> None:
        self.context = context
        self.home = context.home()
        config, env = _loaded(self.home, context)
        platform = config.platforms.get("webhook", Platform())
        self.settings = read_settings(platform.extra, env)
        self.enabled = (
            platform.enabled or env.get("WEBHOOK_ENABLED", "").strip().lower() in _TRUE_VALUES
        )
        self.file = Subscriptions(self.home.webhook_subscriptions)

    def routes(self) -> dict[str, tuple[str, Route]]:
        """Routes by name, each with its source: "subscription" or "settings"."""
        subscribed = subscribed_routes(self.file.read(), self.settings.secret)
        both = {name: ("subscription", route) for name, route in subscribed.items()}
        return both | {name: ("settings", route) for name, route in self.settings.routes.items()}

    def url(self, name: str) -> str:
        listener = _listener_settings(self.home, self.settings, self.context)
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener.host, listener.host)  # noqa: S104 - nothing listens here
        shown = f"[{host}]" if ":" in host else host
        prefix = "" if self.home.profile == DEFAULT_PROFILE else f"/p/{self.home.profile}"
        return f"http://{shown}:{listener.port}{prefix}/webhooks/{quote(name)}"


def perform(args: Namespace, context: CliContext, clock: Clock) -> int:
    action = _WebhookAction(context)
    match args.action:
        case "subscribe":
            return _subscribe(action, args, clock)
        case "remove":
            return _remove(action, args.name)
        case "test":
            return _test(action, args.name, args.payload, clock)
        case _:
            return _list(action, as_json=args.json)


def _loaded(home: Home, context: CliContext) -> tuple[Config, Mapping[str, str]]:
    env = profile_env(home.dotenv, context.env)
    return load_config(home, env).config, env


def _listener_settings(home: Home, own: WebhookSettings, context: CliContext) -> WebhookSettings:
    """The settings with host and port: the default profile's if one process serves all."""
    if home.profile == DEFAULT_PROFILE:
        return own
    config, env = _loaded(profile_home(home.root, DEFAULT_PROFILE), context)
    if not config.multiplexed:
        return own
    return read_settings(config.platforms.get("webhook", Platform()).extra, env)


def _subscribe(action: _WebhookAction, args: Namespace, clock: Clock) -> int:
    entry: Table = {
        "description": args.description,
        "secret": args.secret or secrets.token_hex(32),
        "signature": "" if args.secret == INSECURE else args.signature,
        "form": args.form,
        "allow_repeats": args.allow_repeats,
        "prompt": args.prompt,
        "events": [event.strip() for event in args.events.split(",") if event.strip()],
        "filters": [_filter(text) for text in args.filters],
        "deliver": args.deliver,
        "deliver_only": args.deliver_only,
        "created_at": clock.now().isoformat(timespec="seconds"),
    }
    route = _checked(args.name, {name: value for name, value in entry.items() if value})
    if args.name in action.settings.routes:
        raise UsageError(
            f"The route {args.name} already exists in the settings",
            hint=f"Choose another name, or change it in {action.home.config}",
        )
    if not action.file.add(args.name, {name: value for name, value in entry.items() if value}):
        raise UsageError(
            f"The route {args.name} already exists",
            hint=f"Choose another name, or remove it: hermes webhook remove {args.name}",
        )
    _print_subscribed(action, route, made=not args.secret)
    return 0


def _filter(text: str) -> Table:
    field, sign, value = text.partition("=")
    if not sign or not field.strip():
        raise UsageError(
            f"{text!r} is not a filter", hint="Use FIELD=VALUE, such as --filter action=opened"
        )
    return {"field": field.strip(), "equals": value.strip()}


def _checked(name: str, entry: Table) -> Route:
    try:
        route = read_route(name, entry)
    except ConfigError as error:
        raise UsageError(str(error), hint=error.hint) from error
    if route.unserved:
        raise UsageError(f"This route cannot be created. {route.unserved}")
    return route


def _print_subscribed(action: _WebhookAction, route: Route, *, made: bool) -> None:
    out, err = action.context.stdout, action.context.stderr
    active = "; a running gateway serves it now" if action.enabled else ""
    out.write(f"Route {route.name} created{active}\n")
    out.write(f"URL     {action.url(route.name)}\n")
    if made:
        out.write(f"Secret  {route.secret}\n")
        err.write("The secret is not shown again. The sender needs it to sign its calls.\n")
    if route.scheme is not None:
        out.write(f"Signed  {route.scheme} only\n")
    if route.insecure:
        err.write("hermes: warning: without a secret, any program on this machine can call it\n")
    for note in route.notes:
        err.write(f"hermes: {note}\n")
    err.write(f"Try it: hermes webhook test {route.name}\n")
    if not action.enabled:
        err.write(f"hermes: webhooks are turned off\n  Turn them on: {_enable_hint(action)}\n")


def _enable_hint(action: _WebhookAction) -> str:
    flag = "" if action.home.profile == DEFAULT_PROFILE else f" -p {action.home.profile}"
    return f"hermes{flag} config set platforms.webhook.enabled true, then restart the gateway"


def _list(action: _WebhookAction, *, as_json: bool) -> int:
    from hermes.cli.output import Printer

    printer = Printer(action.context)
    rows = [_route_row(action, source, route) for source, route in action.routes().values()]
    rows.sort(key=lambda row: row.name)
    if as_json:
        for row in rows:
            printer.data(msgspec.json.encode(row) + b"\n")
        return 0
    if not rows:
        action.context.stderr.write(
            "No webhook routes. Create one: hermes webhook subscribe NAME\n"
        )
        return 0
    heading = ("NAME", "STATE", "EVENTS", "ANSWER", "SECRET", "FROM", "URL")
    printer.table([heading, *map(_cells, rows)])
    for row in rows:
        for problem in row.problems:
            action.context.stderr.write(f"hermes: {row.name}: {single_line(problem)}\n")
    if not action.enabled:
        action.context.stderr.write(
            f"hermes: webhooks are turned off\n  Turn them on: {_enable_hint(action)}\n"
        )
    return 0


def _route_row(action: _WebhookAction, source: str, route: Route) -> _RouteRow:
    state = "on" if route.enabled else "off"
    unserved = [route.unserved] if route.unserved else []
    return _RouteRow(
        name=route.name,
        url=action.url(route.name),
        source=source,
        state="not served" if unserved else state,
        events=sorted(route.events),
        deliver=route.answer_to or "log",
        deliver_only=route.verbatim,
        description=route.description,
        signature=route.scheme or "any",
        secret="none" if route.insecure or not route.secret else MASK,
        problems=[*unserved, *route.notes],
    )


def _cells(row: _RouteRow) -> tuple[str, ...]:
    events = ",".join(row.events) or "all"
    answer = f"{row.deliver}, verbatim" if row.deliver_only else row.deliver
    return (
        single_line(row.name),
        row.state,
        single_line(events),
        single_line(answer),
        row.secret,
        row.source,
        row.url,
    )


def _remove(action: _WebhookAction, name: str) -> int:
    if action.file.remove(name):
        action.context.stdout.write(
            f"Route {single_line(name)} removed; calls to it are rejected\n"
        )
        return 0
    if name in action.settings.routes:
        raise UsageError(
            f"The route {name} comes from the settings, not from a subscription",
            hint=f"Remove it: hermes config unset platforms.webhook.extra.routes.{name}",
        )
    raise _unknown_route(name)


def _test(action: _WebhookAction, name: str, given: str | None, clock: Clock) -> int:

    _, route = action.routes().get(name, ("", None))
    if route is None:
        raise _unknown_route(name)
    if route.unserved:
        raise HermesError(f"The route {name} is not served. {route.unserved}")
    status, body = call_route(action.url(name), route, _payload(route, given), clock)
    action.context.stdout.write(f"{status} {escape_controls(body)}\n")
    if status == _ACCEPTED:
        target = single_line(route.answer_to) if route.answer_to else "the log: hermes logs"
        session = "" if route.verbatim else "; see also: hermes sessions list --source webhook"
        action.context.stderr.write(f"The answer goes to {target}{session}\n")
    return 0 if 200 <= status < 300 else 1


def _payload(route: Route, given: str | None) -> bytes:
    if given is None:
        event = min(route.events - {"*"}, default="test")
        # Unique, so that a second test is not rejected as a replay where only bodies are signed.
        example = {"event_type": event, "message": _EXAMPLE, "id": new_id("test")}
        return msgspec.json.encode(example)
    try:
        msgspec.json.decode(given)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"The payload is not JSON: {error}", hint="""For example: --payload '{"a": 1}'"""
        ) from error
    return given.encode()


def _unknown_route(name: str) -> UsageError:
    return UsageError(f"There is no route {name!r}", hint="List the routes: hermes webhook list")


_TIMEOUT = 30.0
_MAX_RESPONSE = 65536


def call_route(url: str, route: Route, body: bytes, clock: Clock) -> tuple[int, str]:
    """The response's status and text. Raises `HermesError` if nothing answers."""
    return anyio.run(_call, url, route, body, clock)


async def _call(url: str, route: Route, body: bytes, clock: Clock) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", **_signature_headers(route, body, clock)}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            text = await response.content.read(_MAX_RESPONSE)
            return response.status, text.decode(errors="replace")
    except TimeoutError as error:
        raise HermesError(f"{url} did not answer within {_TIMEOUT:g} seconds") from error
    except (aiohttp.ClientError, OSError) as error:
        raise HermesError(
            f"Cannot reach {url}: {_reason(error)}",
            hint="Set platforms.webhook.enabled to true, then: hermes gateway restart",
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    return str(error) or type(error).__name__


def _signature_headers(route: Route, body: bytes, clock: Clock) -> dict[str, str]:
    delivery = new_id("test")
    if route.insecure:
        return {"X-Request-ID": delivery}
    return sign(route.secret, delivery, clock.now(), body, route.scheme or Scheme.STANDARD)
