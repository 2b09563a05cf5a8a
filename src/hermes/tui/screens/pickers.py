"""The lists that the chat opens: sessions to go back to, models to choose."""

from collections.abc import Sequence

from hermes.tui.companion import Offered
from hermes.tui.screens.house import House
from hermes.tui.screens.picker import Picker
from hermes.tui.screens.rows import Row, model_row, session_row


def session_picker(house: House, current: str) -> Picker:
    """All but the current one."""

    async def find(words: str) -> Sequence[Row]:
        found = await house.aside.do(lambda: house.companion.sessions(words))
        return [session_row(one) for one in found if one.id != current]

    none = "There is no other session yet. Esc goes back."
    return Picker("Sessions", find, "No session fits.", none)


def model_picker(house: House, current: str) -> Picker:
    """The one in use is marked."""
    offered: list[Offered] = []

    async def find(words: str) -> Sequence[Row]:
        if not offered:
            offered.extend(await house.aside.do(house.companion.models))
        rows = [model_row(one, current) for one in offered]
        return [row for row in rows if words.lower() in row.label.lower()]

    return Picker("Models", find, "No model fits, or none can be reached; /model NAME takes any.")
