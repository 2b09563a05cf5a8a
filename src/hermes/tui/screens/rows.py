"""Lines of a list to choose from."""

from msgspec import Struct

from hermes.kit.plain import fit, flat
from hermes.kit.text import plural
from hermes.tui.companion import Offered, Past


class Row(Struct, frozen=True):
    """`key` is what is chosen; without one it can only be read. One is the `current`, if any."""

    key: str
    label: str
    detail: str = ""
    current: bool = False


def session_row(past: Past) -> Row:
    when = f"{past.last_at.astimezone():%Y-%m-%d %H:%M}"
    told = f"{when}, {plural(past.messages, 'message')}"
    found = f"\n  {fit(flat(past.found), 80)}" if past.found else ""
    return Row(past.id, fit(flat(past.about), 60), told + found)


def model_row(offered: Offered, current: str) -> Row:
    if not offered.model:
        return Row("", flat(offered.provider), fit(flat(offered.trouble), 60))
    key = f"{offered.model} --provider {offered.provider}"
    name = f"{offered.provider}/{offered.model}"
    used = current in {name, offered.model}
    return Row(key, flat(name), "in use" if used else "", used)
