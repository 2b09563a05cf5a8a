"""What `hermes webhook` does: subscribe, list, remove, and try a route out."""

import secrets
from argparse import Namespace
from collections.abc import Mapping
from urllib.parse import quote

import msgspec
from msgspec import Struct

from hermes.channels.webhook.routes import INSECURE, Route, read_route
from hermes.channels.webhook.settings import WebhookSettings, read_settings
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

_EXAMPLE = "A call made by `hermes webhook test`."
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
    """The routes of the home, and where they can be called."""

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
        """Each with where it is written."""
        subscribed = subscribed_routes(self.file.read(), self.settings.secret)
        both = {name: ("subscription", route) for name, route in subscribed.items()}
        return both | {name: ("settings", route) for name, route in self.settings.routes.items()}

    def url(self, name: str) -> str:
        place = _listener_settings(self.home, self.settings, self.context)
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(place.host, place.host)  # noqa: S104 - nothing listens here
        shown = f"[{host}]" if ":" in host else host
        before = "" if self.home.profile == DEFAULT_PROFILE else f"/p/{self.home.profile}"
        return f"http://{shown}:{place.port}{before}/webhooks/{quote(name)}"


def perform(args: Namespace, context: CliContext, clock: Clock) -> int:
    desk = _WebhookAction(context)
    match args.action:
        case "subscribe":
            return _subscribe(desk, args, clock)
        case "remove":
            return _remove(desk, args.name)
        case "test":
            return _test(desk, args.name, args.payload, clock)
        case _:
            return _list(desk, as_json=args.json)


def _loaded(home: Home, context: CliContext) -> tuple[Config, Mapping[str, str]]:
    env = profile_env(home.dotenv, context.env)
    return load_config(home, env).config, env


def _listener_settings(home: Home, own: WebhookSettings, context: CliContext) -> WebhookSettings:
    """Where one process serves all profiles, the default one says where."""
    if home.profile == DEFAULT_PROFILE:
        return own
    config, env = _loaded(profile_home(home.root, DEFAULT_PROFILE), context)
    if not config.multiplexed:
        return own
    return read_settings(config.platforms.get("webhook", Platform()).extra, env)


def _subscribe(desk: _WebhookAction, args: Namespace, clock: Clock) -> int:
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
    if args.name in desk.settings.routes:
        raise UsageError(
            f"There is a route {args.name} in the settings already",
            hint=f"Take another name, or change it in {desk.home.config}",
        )
    if not desk.file.add(args.name, {name: value for name, value in entry.items() if value}):
        raise UsageError(
            f"There is a route {args.name} already",
            hint=f"Take another name, or first: hermes webhook remove {args.name}",
        )
    _print_subscribed(desk, route, made=not args.secret)
    return 0


def _filter(text: str) -> Table:
    field, sign, value = text.partition("=")
    if not sign or not field.strip():
        raise UsageError(
            f"{text!r} is no filter", hint="Write FIELD=VALUE, such as --filter action=opened"
        )
    return {"field": field.strip(), "equals": value.strip()}


def _checked(name: str, entry: Table) -> Route:
    try:
        route = read_route(name, entry)
    except ConfigError as error:
        raise UsageError(str(error), hint=error.hint) from error
    if route.unserved:
        raise UsageError(f"Such a route cannot be made. {route.unserved}")
    return route


def _print_subscribed(desk: _WebhookAction, route: Route, *, made: bool) -> None:
    out, err = desk.context.stdout, desk.context.stderr
    known = "; a running gateway knows it from now on" if desk.enabled else ""
    out.write(f"The route {route.name} is made{known}\n")
    out.write(f"URL     {desk.url(route.name)}\n")
    if made:
        out.write(f"Secret  {route.secret}\n")
        err.write("The secret is shown only now. Give it to the sender to sign its calls with.\n")
    if route.scheme is not None:
        out.write(f"Signed  {route.scheme}, and in no other way\n")
    if route.insecure:
        err.write("hermes: any program on this machine can call it, for it has no secret\n")
    for note in route.notes:
        err.write(f"hermes: {note}\n")
    err.write(f"Try it: hermes webhook test {route.name}\n")
    if not desk.enabled:
        err.write(f"hermes: webhooks are turned off\n  Turn them on with: {_enable_hint(desk)}\n")


def _enable_hint(desk: _WebhookAction) -> str:
    flag = "" if desk.home.profile == DEFAULT_PROFILE else f" -p {desk.home.profile}"
    return f"hermes{flag} config set platforms.webhook.enabled true, then restart the gateway"


def _list(desk: _WebhookAction, *, as_json: bool) -> int:
    from hermes.cli.output import Printer

    printer = Printer(desk.context)
    rows = [_route_row(desk, source, route) for source, route in desk.routes().values()]
    rows.sort(key=lambda row: row.name)
    if as_json:
        for row in rows:
            printer.data(msgspec.json.encode(row) + b"\n")
        return 0
    if not rows:
        desk.context.stderr.write(
            "There are no webhook routes. Make one with: hermes webhook subscribe NAME\n"
        )
        return 0
    heading = ("NAME", "STATE", "EVENTS", "ANSWER", "SECRET", "FROM", "URL")
    printer.table([heading, *map(_cells, rows)])
    for row in rows:
        for problem in row.problems:
            desk.context.stderr.write(f"hermes: {row.name}: {single_line(problem)}\n")
    if not desk.enabled:
        desk.context.stderr.write(
            f"hermes: webhooks are turned off\n  Turn them on with: {_enable_hint(desk)}\n"
        )
    return 0


def _route_row(desk: _WebhookAction, source: str, route: Route) -> _RouteRow:
    state = "on" if route.enabled else "off"
    unserved = [route.unserved] if route.unserved else []
    return _RouteRow(
        name=route.name,
        url=desk.url(route.name),
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


def _remove(desk: _WebhookAction, name: str) -> int:
    if desk.file.remove(name):
        desk.context.stdout.write(
            f"The route {single_line(name)} is gone; calls to it are turned away\n"
        )
        return 0
    if name in desk.settings.routes:
        raise UsageError(
            f"The route {name} is in the settings, not a subscription",
            hint=f"Remove it with: hermes config unset platforms.webhook.extra.routes.{name}",
        )
    raise _unknown_route(name)


def _test(desk: _WebhookAction, name: str, given: str | None, clock: Clock) -> int:
    from hermes.cli.verbs.webhook.signed_call import call_route

    _, route = desk.routes().get(name, ("", None))
    if route is None:
        raise _unknown_route(name)
    if route.unserved:
        raise HermesError(f"The route {name} is not served. {route.unserved}")
    status, body = call_route(desk.url(name), route, _payload(route, given), clock)
    desk.context.stdout.write(f"{status} {escape_controls(body)}\n")
    if status == _ACCEPTED:
        told = single_line(route.answer_to) if route.answer_to else "the log: hermes logs"
        listed = (
            "" if route.verbatim else "; the talk is in `hermes sessions list --source webhook`"
        )
        desk.context.stderr.write(f"The answer goes to {told}{listed}\n")
    return 0 if 200 <= status < 300 else 1


def _payload(route: Route, given: str | None) -> bytes:
    if given is None:
        event = min(route.events - {"*"}, default="test")
        # No two are equal, or the second would be taken for a replay where only bodies are signed.
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
    return UsageError(
        f"There is no route {name!r}", hint="See which there are with: hermes webhook list"
    )
