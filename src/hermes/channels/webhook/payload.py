"""Decode a webhook call's body, name its event, and fill prompts with its fields."""

import re
import secrets
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from hermes.channels.http_calls import CallRejected
from hermes.config.values import as_list, as_mapping
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import head_and_tail
from hermes.schema.messages import Text

UNKNOWN = "unknown"

_FORM = "application/x-www-form-urlencoded"
_JSON = frozenset({"", _FORM, "application/octet-stream"})
"""Content types that some services send with JSON, besides those that name it."""
_MOST_FIELDS = 1000
_LONGEST_NAME = 200

DEFAULT_PROMPT = "Something happened: {event_type}\n\n{__raw__}"

MAX_RAW = 4000
"""Maximum characters of the whole payload in a prompt."""

MAX_NESTED = 2000
"""Maximum characters of a mapping or list within it."""

MAX_TEXT = 20_000
"""Maximum characters of a single text."""

MAX_FIELDS_TOTAL = 60_000
"""Maximum characters of all fields of one prompt together."""

_FIELD = re.compile(r"\{([A-Za-z_@$][\w.@$-]{0,199})\}", re.ASCII)
_LEFT_OUT = "[left out: the payload is too large]"


class Payload(Struct, frozen=True):
    """`value` is a mapping or a list; `raw` is the text it was read from."""

    value: object
    raw: str


class Event(Struct, frozen=True):
    """The event's display name and all names that a route's event list may use."""

    name: str
    names: frozenset[str]


def read_payload(content_type: str, body: bytes, *, forms: bool = True) -> Payload:
    """Decode JSON or a form; raises `CallRejected` for anything else and for unwanted forms."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _FORM and not body.lstrip().startswith(b"{"):
        if not forms:
            message = "Send JSON; with this signature scheme, forms require `form: true`."
            raise CallRejected(415, "content_type", message)
        form = _form(body)
        if not isinstance(form, bytes):
            return form
        body = form
    elif kind not in _JSON and not kind.endswith(("/json", "+json")):
        raise CallRejected(415, "content_type", "The body must be JSON or a URL-encoded form.")
    try:
        raw = body.decode()
        value: object = msgspec.json.decode(raw)
    except JSON_ERRORS as error:
        raise CallRejected(400, "body", f"The body is not valid JSON: {error}.") from error
    if not isinstance(value, dict | list):
        raise CallRejected(400, "body", "The body must be a JSON object or a list.")
    return Payload(cast("object", value), raw)


def value_at(value: object, path: str) -> tuple[bool, object]:
    """Return whether there is a value at `a.b.0.c`, and the value."""
    for step in path.split("."):
        if (mapping := as_mapping(value)) is not None and step in mapping:
            value = mapping[step]
        elif (entries := as_list(value)) is not None and _is_index(step, len(entries)):
            value = entries[int(step)]
        else:
            return False, None
    return True, value


def as_text(value: object) -> str:
    """Return text unchanged, other values as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def event_of(headers: Mapping[str, str], value: object) -> Event:
    """Name the event from headers or payload; GitHub actions add finer names."""
    words = dict.fromkeys(("event_type", "type", "object_kind", "action"), "")
    fields = as_mapping(value) or {}
    for name in words:
        if isinstance(text := fields.get(name), str):
            words[name] = text[:_LONGEST_NAME]
    candidates = [headers.get("x-github-event", ""), headers.get("x-gitlab-event", "")]
    candidates += [words["event_type"], words["type"]]
    found = [name.strip()[:_LONGEST_NAME] for name in candidates if name.strip()]
    if not found:
        return Event(UNKNOWN, frozenset({UNKNOWN}))
    # "Merge Request Hook" is also known as merge_request.
    normalized = [name.lower().removesuffix(" hook").replace(" ", "_") for name in found[:1]]
    names = {name.lower() for name in (*found, *normalized, words["object_kind"]) if name}
    action = words["action"].lower()
    finer = {f"{name}.{action}" for name in names} if action else set[str]()
    return Event(found[0], frozenset(names | finer))


def _form(body: bytes) -> Payload | bytes:
    """Decode a form; some services send their JSON as its single field `payload`."""
    try:
        raw = body.decode()
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except (UnicodeDecodeError, ValueError) as error:
        raise CallRejected(400, "body", f"The form is invalid: {error}.") from error
    fields: dict[str, list[str]] = {}
    for name, text in pairs:
        fields.setdefault(name, []).append(text)
    if list(fields) == ["payload"] and len(fields["payload"]) == 1:
        return fields["payload"][0].encode()
    value = {name: texts[0] if len(texts) == 1 else texts for name, texts in fields.items()}
    return Payload(value, raw)


def _is_index(step: str, length: int) -> bool:
    return step.isascii() and step.isdecimal() and len(step) <= 9 and int(step) < length


def prompt_parts(template: str, route: str, event: Event, payload: Payload) -> tuple[Text, Text]:
    """Return the frame that explains the tags, and the prompt with tagged fields.

    The tags have a random name, so that a payload cannot close them early.
    """
    tag = secrets.token_hex(4)
    opened, closed = f"<data-{tag}>", f"</data-{tag}>"
    frame = _frame().replace("@route@", route).replace("@open@", opened).replace("@close@", closed)
    return Text(frame + "\n"), Text(_filled(template, event, payload, (opened, closed)))


def plain_text(template: str, event: Event, payload: Payload) -> str:
    return _filled(template, event, payload, ("", ""))


@cache
def _frame() -> str:
    return (Path(__file__).parent / "frame.md").read_text(encoding="utf-8").strip()


def _filled(template: str, event: Event, payload: Payload, tags: tuple[str, str]) -> str:
    """Fill in the fields; those that the payload does not have stay as they are written."""
    pieces = _FIELD.split(template or DEFAULT_PROMPT)
    remaining = MAX_FIELDS_TOTAL
    for index in range(1, len(pieces), 2):
        path = pieces[index]
        if path == "__raw__":
            text = head_and_tail(payload.raw, MAX_RAW)
        elif path == "event_type":
            text = event.name
        else:
            known, value = value_at(payload.value, path)
            if not known:
                pieces[index] = f"{{{path}}}"
                continue
            if isinstance(value, str):
                text = head_and_tail(value, MAX_TEXT)
            else:
                text = head_and_tail(as_text(value), MAX_NESTED)
        remaining -= len(text)
        pieces[index] = f"{tags[0]}{text}{tags[1]}" if remaining >= 0 else _LEFT_OUT
    return "".join(pieces)
