"""A route: who may call it, which calls count, what is asked of the agent, who hears the answer."""

import re
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from hermes.channels.webhook.filters import Filter, read_filters
from hermes.channels.webhook.signatures import Scheme
from hermes.config.yaml_values import as_mapping, describe_value
from hermes.schema.errors import ConfigError

INSECURE = "INSECURE_NO_AUTH"
"""In place of a secret: anybody on this machine may call."""

LOG = "log"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TARGET = re.compile(r"[a-z][a-z0-9_-]*(?::[^\s,:][^,]*)?", re.IGNORECASE)
_SHORT_SECRET = 16
_CHAT_FIELDS = ("chat_id", "thread_id", "message_thread_id")


class Route(Struct, frozen=True, kw_only=True):
    """`answer_to` are targets for the answer; without any it is only logged.

    `unserved` says why calls are turned away, `notes` what else its owner should know. Where only
    the body is signed, `form` takes forms as well as JSON, and `repeats` believes the unsigned id
    of a call: equal bodies count again under another id, and so does a replay by a stranger.
    `shares` are all routes with this secret, if there are others: no signature names its route, so
    what was taken at one of them is not taken at another.
    """

    name: str
    secret: str = ""
    prompt: str = ""
    events: frozenset[str] = frozenset()
    filters: tuple[Filter, ...] = ()
    scheme: Scheme | None = None
    form: bool = False
    repeats: bool = False
    answer_to: str = ""
    verbatim: bool = False
    enabled: bool = True
    description: str = ""
    unserved: str = ""
    notes: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()

    @property
    def insecure(self) -> bool:
        return self.secret == INSECURE

    def wants(self, names: frozenset[str]) -> bool:
        return not self.events or "*" in self.events or not self.events.isdisjoint(names)


class _RouteSettings(Struct, frozen=True, kw_only=True):
    """A route as a file has it; the last six belong to features that are not there yet."""

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
    cron_job: object = None
    coalesce: object = None


_UNSUPPORTED = ("script", "skills", "toolsets", "cron_job", "coalesce")


def read_route(name: str, value: object, default_secret: str = "") -> Route:
    """Raises `ConfigError` for what is none; what asks for too much comes back as `unserved`."""
    checked_name(name)
    written = _read_settings(value)
    secret = _secret(written.secret or default_secret)
    events = written.events.split(",") if isinstance(written.events, str) else written.events
    answer_to = _answer_to(written)
    if written.deliver_only and not answer_to:
        raise ConfigError(
            "deliver_only: there is nobody to deliver to",
            hint="Say where with deliver, such as `deliver: telegram`.",
        )
    return Route(
        name=name,
        secret=secret,
        prompt=written.prompt,
        events=frozenset(event.strip().lower() for event in events if event.strip()),
        filters=read_filters(written.filters),
        scheme=written.signature,
        form=written.form,
        repeats=written.allow_repeats,
        answer_to=answer_to,
        verbatim=written.deliver_only,
        enabled=written.enabled,
        description=written.description,
        unserved=_unserved(written),
        notes=tuple(_notes(value, written, secret)),
    )


def with_shared_secrets(routes: Mapping[str, Route]) -> dict[str, Route]:
    """The same routes; those whose secret another one has, too, say so."""
    by_secret: dict[str, list[str]] = {}
    for name, route in sorted(routes.items()):
        if route.secret and not route.insecure:
            by_secret.setdefault(route.secret, []).append(name)
    marked: dict[str, Route] = {}
    for name, route in routes.items():
        group = tuple(by_secret.get(route.secret, ()))
        if len(group) > 1:
            others = ", ".join(one for one in group if one != name)
            note = (
                f"Its secret is also that of {others}: a call signed for one of them fits the "
                "others. Give each route a secret of its own."
            )
            notes = (*route.notes, note)
            marked[name] = msgspec.structs.replace(route, shares=group, notes=notes)
        else:
            marked[name] = route
    return marked


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a route",
            hint="Use letters, digits, dots, - and _, at most 64 of them.",
        )
    return name


def _read_settings(value: object) -> _RouteSettings:
    table = as_mapping(value)
    if table is None:
        raise ConfigError(
            f"expected a route, found {describe_value(value)}",
            hint="Write `secret:` and `prompt:` below its name.",
        )
    given = {str(name): item for name, item in table.items() if item is not None}
    try:
        return msgspec.convert(given, _RouteSettings, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        field = place.strip("`").removeprefix("$.")
        hint = "Put it in quotes." if field == "secret" else ""
        raise ConfigError(f"{field}: {what}" if field else what, hint=hint) from error


def _secret(secret: str) -> str:
    if not secret.strip():
        raise ConfigError(
            "secret: every route needs one",
            hint="Make one with `openssl rand -hex 32`, and give it to the sender, too.",
        )
    if secret.startswith("${") and secret.endswith("}"):
        # What stands for a secret in a file that many may read is no secret.
        raise ConfigError(
            f"secret: the variable {secret[2:-1]} is not set",
            hint=f"Set it with: hermes config set {secret[2:-1]} SECRET",
        )
    return secret


def _answer_to(written: _RouteSettings) -> str:
    deliver = written.deliver.strip()
    if deliver in {"", LOG, "github_comment"}:
        return ""
    targets = [target.strip() for target in deliver.split(",")]
    if LOG in targets or "origin" in targets or not all(map(_TARGET.fullmatch, targets)):
        raise ConfigError(
            f"deliver: {deliver!r} is no place for an answer",
            hint="Write log, a platform such as telegram, or platform:chat[:thread].",
        )
    extra = {name: str(written.deliver_extra.get(name) or "").strip() for name in _CHAT_FIELDS}
    if any("{" in text or "," in text for text in extra.values()):
        raise ConfigError(
            "deliver_extra: a call must not choose who gets the answer",
            hint="Write the chat's own id there.",
        )
    chat, thread = extra["chat_id"], extra["thread_id"] or extra["message_thread_id"]
    if not chat or len(targets) > 1 or ":" in deliver:
        return ",".join(targets)
    return f"{deliver}:{chat}:{thread}" if thread else f"{deliver}:{chat}"


def _unserved(written: _RouteSettings) -> str:
    given = msgspec.structs.asdict(written)
    later = [name for name in _UNSUPPORTED if given[name]]
    if written.deliver.strip() == "github_comment":
        later.append("deliver: github_comment")
    if not later:
        return ""
    return f"It needs what this version does not have yet: {', '.join(later)}."


def _notes(value: object, written: _RouteSettings, secret: str) -> Iterator[str]:
    unknown = [str(name) for name in as_mapping(value) or {} if name not in _FIELDS]
    if unknown:
        yield f"Nobody knows what {', '.join(unknown)} means; it is ignored."
    if written.profile:
        yield f"Its profile {written.profile} is ignored: a route belongs to the home it is in."
    served = {
        *_CHAT_FIELDS,
        *(("repo", "pr_number") if written.deliver == "github_comment" else ()),
    }
    if idle := [name for name in written.deliver_extra if name not in served]:
        yield f"deliver_extra has {', '.join(idle)}, which nothing here uses."
    if secret != INSECURE and len(secret) < _SHORT_SECRET:
        yield f"Its secret is shorter than {_SHORT_SECRET} characters, and may be guessed."


_FIELDS = frozenset(_RouteSettings.__struct_fields__)
