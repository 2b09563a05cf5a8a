"""Settings of the webhook channel and its routes: `platforms.webhook.extra` and variables."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from hermes.channels.webhook.filters import Filter, read_filters
from hermes.channels.webhook.signatures import Scheme
from hermes.config.sections import FreeTable, Port
from hermes.config.values import as_mapping, describe_value
from hermes.schema.errors import ConfigError

INSECURE = "INSECURE_NO_AUTH"
"""Used instead of a secret: any program on this machine may call."""

SETTINGS_PATH = "platforms.webhook.extra"
HOST = "127.0.0.1"
PORT = 8644
PER_MINUTE = 30
BODY = 1024 * 1024

LOG = "log"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TARGET = re.compile(r"[a-z][a-z0-9_-]*(?::[^\s,:][^,]*)?", re.IGNORECASE)
_SHORT_SECRET = 16
_CHAT_FIELDS = ("chat_id", "thread_id", "message_thread_id")


class Route(Struct, frozen=True, kw_only=True):
    """One route; an `insecure` one has no secret.

    `answer_to` are the answer's targets; without any it is only logged. With `job`, a call fires
    that scheduled job and starts no turn of its own.

    `unserved`: why calls are rejected. `notes`: warnings for the owner. For schemes that sign only
    the body, `form` accepts forms as well as JSON, and `repeats` trusts the unsigned id of a call:
    equal bodies with another id count again, and so does a replay. `shares`: all routes with the
    same secret, if there are others; signatures do not name a route, so a call accepted at one of
    them is rejected at the others.
    """

    name: str
    secret: str = ""
    insecure: bool = False
    prompt: str = ""
    events: frozenset[str] = frozenset()
    filters: tuple[Filter, ...] = ()
    scheme: Scheme | None = None
    form: bool = False
    repeats: bool = False
    answer_to: str = ""
    verbatim: bool = False
    job: str = ""
    enabled: bool = True
    description: str = ""
    unserved: str = ""
    notes: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()

    def wants(self, names: frozenset[str]) -> bool:
        return not self.events or "*" in self.events or not self.events.isdisjoint(names)


class _RouteSettings(Struct, frozen=True, kw_only=True):
    """A route as stored; some of the last fields belong to features that do not exist yet."""

    secret: str = ""
    prompt: str = ""
    events: tuple[str, ...] | str = ()
    filters: object = ()
    signature: Scheme | None = None
    form: bool = False
    allow_repeats: bool = False
    deliver: str = LOG
    deliver_extra: Mapping[str, object] = {}
    deliver_only: bool = False
    enabled: bool = True
    description: str = ""
    created_at: object = None
    profile: str = ""
    script: object = None
    skills: object = None
    toolsets: object = None
    cron_job: str | None = None
    coalesce: object = None


_FIELDS = frozenset(_RouteSettings.__struct_fields__)
_UNSUPPORTED = ("script", "skills", "toolsets", "coalesce")


def read_route(name: str, value: object, default_secret: str = "") -> Route:
    """Parse a route; raises `ConfigError`. Unsupported features make it `unserved`."""
    checked_name(name)
    settings = _read_settings(value)
    secret = _secret(settings.secret or default_secret)
    events = settings.events.split(",") if isinstance(settings.events, str) else settings.events
    answer_to = _answer_to(settings)
    if settings.deliver_only and not answer_to:
        raise ConfigError(
            "deliver_only: no target to deliver to",
            hint="Set one with deliver, for example `deliver: telegram`.",
        )
    return Route(
        name=name,
        secret=secret,
        insecure=secret == INSECURE,
        prompt=settings.prompt,
        events=frozenset(event.strip().lower() for event in events if event.strip()),
        filters=read_filters(settings.filters),
        scheme=settings.signature,
        form=settings.form,
        repeats=settings.allow_repeats,
        answer_to=answer_to,
        verbatim=settings.deliver_only,
        job=(settings.cron_job or "").strip(),
        enabled=settings.enabled,
        description=settings.description,
        unserved=_unserved(settings),
        notes=tuple(_notes(value, settings, secret)),
    )


def with_shared_secrets(routes: Mapping[str, Route]) -> dict[str, Route]:
    """Mark routes whose secret is also used by another route."""
    by_secret: dict[str, list[str]] = {}
    for name, route in sorted(routes.items()):
        if route.secret and not route.insecure:
            by_secret.setdefault(route.secret, []).append(name)
    marked = dict(routes)
    for group in by_secret.values():
        for name in group if len(group) > 1 else ():
            others = ", ".join(other for other in group if other != name)
            note = (
                f"It shares its secret with {others}, so a call signed for one is valid for the "
                "others. Give each route its own secret."
            )
            notes = (*routes[name].notes, note)
            marked[name] = structs.replace(routes[name], shares=tuple(group), notes=notes)
    return marked


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid route name",
            hint="Use at most 64 letters, digits, dots, - and _.",
        )
    return name


def _read_settings(value: object) -> _RouteSettings:
    table = as_mapping(value)
    if table is None:
        raise ConfigError(
            f"expected a route, found {describe_value(value)}",
            hint="Write `secret:` and `prompt:` below its name.",
        )
    fields = {str(name): item for name, item in table.items() if item is not None}
    try:
        return msgspec.convert(fields, _RouteSettings, strict=False)
    except msgspec.ValidationError as error:
        what, _, location = str(error).partition(" - at ")
        field = location.strip("`").removeprefix("$.")
        hint = "Put it in quotes." if field == "secret" else ""
        raise ConfigError(f"{field}: {what}" if field else what, hint=hint) from error


def _secret(secret: str) -> str:
    if not secret.strip():
        raise ConfigError(
            "secret: every route needs one",
            hint="Create one with `openssl rand -hex 32` and give it to the sender too.",
        )
    if secret.startswith("${") and secret.endswith("}"):
        # An unexpanded placeholder is in a readable file, so it is not a secret.
        raise ConfigError(
            f"secret: the variable {secret[2:-1]} is not set",
            hint=f"Set it with: hermes config set {secret[2:-1]} SECRET",
        )
    return secret


def _answer_to(settings: _RouteSettings) -> str:
    deliver = settings.deliver.strip()
    if deliver in {"", LOG, "github_comment"}:
        return ""
    targets = [target.strip() for target in deliver.split(",")]
    if LOG in targets or "origin" in targets or not all(map(_TARGET.fullmatch, targets)):
        raise ConfigError(
            f"deliver: {deliver!r} is not a delivery target",
            hint="Use log, a platform such as telegram, or platform:chat[:thread].",
        )
    extra = {name: str(settings.deliver_extra.get(name) or "").strip() for name in _CHAT_FIELDS}
    if any("{" in text or "," in text for text in extra.values()):
        raise ConfigError(
            "deliver_extra: a call must not choose the recipient", hint="Use a fixed chat id."
        )
    chat, thread = extra["chat_id"], extra["thread_id"] or extra["message_thread_id"]
    if not chat or len(targets) > 1 or ":" in deliver:
        return ",".join(targets)
    return f"{deliver}:{chat}:{thread}" if thread else f"{deliver}:{chat}"


def _unserved(settings: _RouteSettings) -> str:
    unsupported = [name for name in _UNSUPPORTED if getattr(settings, name)]
    if settings.deliver.strip() == "github_comment":
        unsupported.append("deliver: github_comment")
    if not unsupported:
        return ""
    return f"It uses features that this version does not support yet: {', '.join(unsupported)}."


def _notes(value: object, settings: _RouteSettings, secret: str) -> Iterator[str]:
    unknown = [str(name) for name in as_mapping(value) or {} if name not in _FIELDS]
    if unknown:
        yield f"Unknown fields are ignored: {', '.join(unknown)}."
    if settings.profile:
        yield f"Its profile {settings.profile} is ignored: a route belongs to its home."
    used = set(_CHAT_FIELDS)
    if settings.deliver == "github_comment":
        used |= {"repo", "pr_number"}
    if unused := [name for name in settings.deliver_extra if name not in used]:
        yield f"Unused fields in deliver_extra: {', '.join(unused)}."
    if secret != INSECURE and len(secret) < _SHORT_SECRET:
        yield f"Its secret is shorter than {_SHORT_SECRET} characters and could be guessed."


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """`secret` is the default of routes without one; `per_minute` limits the calls of a route."""

    host: str = HOST
    port: int = PORT
    secret: str = ""
    per_minute: int = PER_MINUTE
    body: int = BODY
    routes: Mapping[str, Route] = {}


class _Extra(Struct, frozen=True, kw_only=True):
    host: str = HOST
    port: Port = PORT
    secret: str = ""
    rate_limit: Annotated[int, Meta(ge=1)] = PER_MINUTE
    max_body_bytes: Annotated[int, Meta(ge=1, le=64 * 1024 * 1024)] = BODY
    routes: object = None


def read_settings(extra: FreeTable, env: Mapping[str, str]) -> WebhookSettings:
    """Read the settings: file, then variables, then defaults. Raises `ConfigError`."""
    values = {name: value for name, value in extra.items() if value is not None}
    for name, variable in (("port", "WEBHOOK_PORT"), ("secret", "WEBHOOK_SECRET")):
        if name not in values and env.get(variable, "").strip():
            values[name] = env[variable].strip()
    try:
        parsed = msgspec.convert(values, _Extra, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{SETTINGS_PATH}: {error}", hint="Check it with: hermes config get platforms.webhook"
        ) from error
    return WebhookSettings(
        host=parsed.host.strip() or HOST,
        port=parsed.port,
        secret=parsed.secret,
        per_minute=parsed.rate_limit,
        body=parsed.max_body_bytes,
        routes=_routes(parsed.routes, parsed.secret),
    )


def _routes(value: object, secret: str) -> dict[str, Route]:
    table = as_mapping(value if value is not None else {})
    if table is None:
        raise ConfigError(
            f"{SETTINGS_PATH}.routes: expected routes by name, found {describe_value(value)}",
            hint="Write `secret:` and `prompt:` below each `NAME:`.",
        )
    routes: dict[str, Route] = {}
    for name, entry in table.items():
        try:
            routes[str(name)] = read_route(str(name), entry, secret)
        except ConfigError as error:
            raise ConfigError(f"{SETTINGS_PATH}.routes.{name}: {error}", hint=error.hint) from error
    return routes
