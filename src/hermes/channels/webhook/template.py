"""Fill a route's prompt with payload fields, marked as untrusted content."""

import re
import secrets
from functools import cache
from pathlib import Path

from hermes.channels.webhook.payload import Event, Payload, as_text, value_at
from hermes.kit.text import head_and_tail
from hermes.schema.messages import Text

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
_LEFT_OUT = "[left out: the call brought too much]"


def prompt_parts(template: str, route: str, event: Event, payload: Payload) -> tuple[Text, Text]:
    """Return the frame that explains the tags, and the prompt with tagged fields.

    The tags have a random name, so that a payload cannot close them early.
    """
    tag = secrets.token_hex(4)
    opened, closed = f"<data-{tag}>", f"</data-{tag}>"
    frame = _frame().replace("@route@", route).replace("@open@", opened).replace("@close@", closed)
    return Text(frame + "\n"), Text(_filled(template, event, payload, (opened, closed)))


def plain_text(template: str, event: Event, payload: Payload) -> str:
    """Return the filled template for people, without tags."""
    return _filled(template, event, payload, ("", ""))


@cache
def _frame() -> str:
    return (Path(__file__).parent / "frame.md").read_text(encoding="utf-8").strip()


def _filled(template: str, event: Event, payload: Payload, tags: tuple[str, str]) -> str:
    remaining = MAX_FIELDS_TOTAL

    def value(found: re.Match[str]) -> str:
        nonlocal remaining
        known, text = _field(found[1], event, payload)
        if not known:
            return found[0]
        remaining -= len(text)
        return f"{tags[0]}{text}{tags[1]}" if remaining >= 0 else _LEFT_OUT

    return _FIELD.sub(value, template or DEFAULT_PROMPT)


def _field(path: str, event: Event, payload: Payload) -> tuple[bool, str]:
    if path == "__raw__":
        return True, head_and_tail(payload.raw, MAX_RAW)
    if path == "event_type":
        return True, event.name
    known, value = value_at(payload.value, path)
    if not known:
        return False, ""
    return True, head_and_tail(as_text(value), MAX_TEXT if isinstance(value, str) else MAX_NESTED)
