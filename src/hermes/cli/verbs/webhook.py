"""`hermes webhook`: let other programs trigger the agent over HTTP."""

import secrets
from argparse import Namespace
from urllib.parse import quote

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
from hermes.channels.webhook.signatures import Scheme, sign, signature_header
from hermes.channels.webhook.subscriptions import Subscriptions, Table, subscribed_routes
from hermes.cli.context import CliContext
from hermes.cli.output import Printer
from hermes.config.env import profile_env
from hermes.config.home import DEFAULT_PROFILE, Home, profile_home
from hermes.config.loader import load_config
from hermes.config.sections.messaging import Platform
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.ids import new_id
from hermes.kit.redact import MASK
from hermes.kit.terminal_text import escape_controls, single_line
from hermes.schema.errors import ConfigError, HermesError, UsageError

_EXAMPLE = "Test call from `hermes webhook test`."
_ACCEPTED = 202
_TIMEOUT = 30.0
_MAX_RESPONSE = 65536
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
        env = context.profile_env()
        platform = context.load_config().config.platforms.get("webhook", Platform())
        self.settings = read_settings(platform.extra, env)
        variable = env.get("WEBHOOK_ENABLED", "").strip().lower()
        self.enabled = bool(platform.enabled) or variable in _TRUE_VALUES
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


def run(args: Namespace, context: CliContext) -> int:
    action, clock = _WebhookAction(context), SystemClock()
    match args.action:
        case "subscribe":
            return _subscribe(action, args, clock)
        case "remove":
            return _remove(action, args.name)
        case "test":
            return _test(action, args.name, args.payload, clock)
        case _:
            return _list(action, as_json=args.json)


def _listener_settings(home: Home, own: WebhookSettings, context: CliContext) -> WebhookSettings:
    """The settings with host and port: the default profile's if one process serves all."""
    if home.profile == DEFAULT_PROFILE:
        return own
    default = profile_home(home.root, DEFAULT_PROFILE)
    env = profile_env(default.dotenv, context.env)
    config = load_config(default, env).config
    if not config.multiplexed:
        return own
    return read_settings(config.platforms.get("webhook", Platform()).extra, env)


def _subscribe(action: _WebhookAction, args: Namespace, clock: Clock) -> int:
    fields: Table = {
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
    entry = {name: value for name, value in fields.items() if value}
    route = _checked(args.name, entry)
    if args.name in action.settings.routes:
        raise UsageError(
            f"The route {args.name} already exists in the settings.",
            hint=f"Choose another name, or change it in {action.home.config}",
        )
    if not action.file.add(args.name, entry):
        raise UsageError(
            f"The route {args.name} already exists.",
            hint=f"Choose another name, or remove it: hermes webhook remove {args.name}",
        )
    _print_subscribed(action, route, made=not args.secret)
    return 0


def _filter(text: str) -> Table:
    field, sign, value = text.partition("=")
    if not sign or not field.strip():
        raise UsageError(
            f"{text!r} is not a filter.", hint="Use FIELD=VALUE, such as --filter action=opened"
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
    context = action.context
    active = "; a running gateway serves it now" if action.enabled else ""
    context.print(f"Route {route.name} created{active}\nURL     {action.url(route.name)}")
    if made:
        context.print(f"Secret  {route.secret}")
        context.note("The secret is not shown again. The sender needs it to sign its calls.")
    if route.scheme is not None:
        context.print(f"Signed  in the header {signature_header(route.scheme)}")
    if route.insecure:
        context.note("hermes: warning: without a secret, any program on this machine can call it")
    for note in route.notes:
        context.note(f"hermes: {note}")
    context.note(f"Try it: hermes webhook test {route.name}")
    _note_if_disabled(action)


def _note_if_disabled(action: _WebhookAction) -> None:
    if action.enabled:
        return
    flag = "" if action.home.profile == DEFAULT_PROFILE else f" -p {action.home.profile}"
    action.context.note(
        "hermes: webhooks are turned off\n"
        f"  Turn them on: hermes{flag} config set platforms.webhook.enabled true, then restart "
        "the gateway"
    )


def _list(action: _WebhookAction, *, as_json: bool) -> int:
    printer = Printer(action.context)
    rows = [_route_row(action, source, route) for source, route in action.routes().values()]
    rows.sort(key=lambda row: row.name)
    if as_json:
        for row in rows:
            printer.data(msgspec.json.encode(row) + b"\n")
        return 0
    if not rows:
        action.context.note("No webhook routes. Create one: hermes webhook subscribe NAME")
        return 0
    heading = ("NAME", "STATE", "EVENTS", "ANSWER", "SECRET", "FROM", "URL")
    printer.table([heading, *map(_cells, rows)])
    for row in rows:
        for problem in row.problems:
            action.context.note(f"hermes: {row.name}: {single_line(problem)}")
    _note_if_disabled(action)
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
    name, events = single_line(row.name), single_line(",".join(row.events) or "all")
    answer = single_line(row.deliver) + (", verbatim" if row.deliver_only else "")
    return (name, row.state, events, answer, row.secret, row.source, row.url)


def _remove(action: _WebhookAction, name: str) -> int:
    if action.file.remove(name):
        action.context.print(f"Route {single_line(name)} removed; calls to it are rejected")
        return 0
    if name in action.settings.routes:
        raise UsageError(
            f"The route {name} comes from the settings, not from a subscription.",
            hint=f"Remove it: hermes config unset platforms.webhook.extra.routes.{name}",
        )
    raise _unknown_route(name)


def _test(action: _WebhookAction, name: str, payload: str | None, clock: Clock) -> int:
    _, route = action.routes().get(name, ("", None))
    if route is None:
        raise _unknown_route(name)
    if route.unserved:
        raise HermesError(f"The route {name} is not served. {route.unserved}")
    status, body = anyio.run(_call, action.url(name), route, _payload(route, payload), clock)
    action.context.print(f"{status} {escape_controls(body)}")
    if status == _ACCEPTED:
        target = single_line(route.answer_to) if route.answer_to else "the log: hermes logs"
        session = "" if route.verbatim else "; see also: hermes sessions list --source webhook"
        action.context.note(f"The answer goes to {target}{session}")
    return 0 if 200 <= status < 300 else 1


def _payload(route: Route, text: str | None) -> bytes:
    if text is None:
        event = min(route.events - {"*"}, default="test")
        # Unique, so that a second test is not rejected as a replay where only bodies are signed.
        example = {"event_type": event, "message": _EXAMPLE, "id": new_id("test")}
        return msgspec.json.encode(example)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"The payload is not JSON: {error}.", hint="""For example: --payload '{"a": 1}'"""
        ) from error
    return text.encode()


def _unknown_route(name: str) -> UsageError:
    return UsageError(f"Unknown route: {name!r}.", hint="List the routes: hermes webhook list")


async def _call(url: str, route: Route, body: bytes, clock: Clock) -> tuple[int, str]:
    """The response's status and text. Raises `HermesError` if nothing answers."""
    import aiohttp

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
        raise HermesError(f"{url} did not answer within {_TIMEOUT:g} seconds.") from error
    except (aiohttp.ClientError, OSError) as error:
        cause = getattr(error, "os_error", error)
        reason = getattr(cause, "strerror", "") or str(cause) or type(error).__name__
        raise HermesError(
            f"Cannot reach {url}: {reason}.",
            hint="Set platforms.webhook.enabled to true, then: hermes gateway restart",
        ) from error


def _signature_headers(route: Route, body: bytes, clock: Clock) -> dict[str, str]:
    delivery = new_id("test")
    if route.insecure:
        return {"X-Request-ID": delivery}
    return sign(route.secret, delivery, clock.now(), body, route.scheme or Scheme.STANDARD)
