"""A route's prompt filled with what a call brought, so that foreign words are seen as such."""

import re
import secrets
from functools import cache
from pathlib import Path

from hermes.channels.webhook.payload import Event, Payload, as_text, look_up
from hermes.kit.text import head_and_tail
from hermes.schema.messages import Text

DEFAULT_PROMPT = "Something happened: {event_type}\n\n{__raw__}"

RAW = 4000
"""Characters of the whole payload that a prompt can hold."""

NESTED = 2000
"""Characters of a mapping or a list within it."""

PLAIN = 20_000
"""Characters of a single text."""

ALL = 60_000
"""Characters that all fields of one prompt may have together."""

_FIELD = re.compile(r"\{([A-Za-z_@$][\w.@$-]{0,199})\}", re.ASCII)
_SPENT = "[left out: the call brought too much]"


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
    left = ALL

    def value(found: re.Match[str]) -> str:
        nonlocal left
        known, text = _field(found[1], event, payload)
        if not known:
            return found[0]
        left -= len(text)
        return f"{marks[0]}{text}{marks[1]}" if left >= 0 else _SPENT

    return _FIELD.sub(value, template or DEFAULT_PROMPT)


def _field(path: str, event: Event, payload: Payload) -> tuple[bool, str]:
    if path == "__raw__":
        return True, head_and_tail(payload.raw, RAW)
    if path == "event_type":
        return True, event.name
    known, value = look_up(payload.value, path)
    if not known:
        return False, ""
    return True, head_and_tail(as_text(value), PLAIN if isinstance(value, str) else NESTED)
