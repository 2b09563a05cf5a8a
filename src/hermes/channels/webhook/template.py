"""A route's prompt filled with what a call brought, so that foreign words are seen as such."""

import re
import secrets
from functools import cache
from pathlib import Path

from hermes.channels.webhook.payload import Event, Payload, as_text, value_at
from hermes.kit.text import head_and_tail
from hermes.schema.messages import Text

DEFAULT_PROMPT = "Something happened: {event_type}\n\n{__raw__}"

MAX_RAW = 4000
"""Characters of the whole payload that a prompt can hold."""

MAX_NESTED = 2000
"""Characters of a mapping or a list within it."""

MAX_TEXT = 20_000
"""Characters of a single text."""

MAX_FIELDS_TOTAL = 60_000
"""Characters that all fields of one prompt may have together."""

_FIELD = re.compile(r"\{([A-Za-z_@$][\w.@$-]{0,199})\}", re.ASCII)
_LEFT_OUT = "[left out: the call brought too much]"


def prompt_parts(template: str, route: str, event: Event, payload: Payload) -> tuple[Text, Text]:
    """For the agent: what this is and what to take it for, then the prompt with marked fields.

    The marks have a name that nobody outside can know, so no payload can end them early.
    """
    mark = secrets.token_hex(4)
    opened, closed = f"<data-{mark}>", f"</data-{mark}>"
    frame = _frame().replace("@route@", route).replace("@open@", opened).replace("@close@", closed)
    return Text(frame + "\n"), Text(_filled(template, event, payload, (opened, closed)))


def plain_text(template: str, event: Event, payload: Payload) -> str:
    """For a person: the template with its fields, and nothing else."""
    return _filled(template, event, payload, ("", ""))


@cache
def _frame() -> str:
    return (Path(__file__).parent / "frame.md").read_text(encoding="utf-8").strip()


def _filled(template: str, event: Event, payload: Payload, marks: tuple[str, str]) -> str:
    left = MAX_FIELDS_TOTAL

    def value(found: re.Match[str]) -> str:
        nonlocal left
        known, text = _field(found[1], event, payload)
        if not known:
            return found[0]
        left -= len(text)
        return f"{marks[0]}{text}{marks[1]}" if left >= 0 else _LEFT_OUT

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
