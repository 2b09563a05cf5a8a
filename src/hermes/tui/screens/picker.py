"""Lines of a list to choose from."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ClassVar

from msgspec import Struct
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hermes.kit.terminal_text import fit, single_line
from hermes.kit.text import plural
from hermes.schema.errors import HermesError
from hermes.tui.client import ModelOption, SessionOption
from hermes.tui.screens.chat_deps import ChatDeps


class PickerRow(Struct, frozen=True):
    """`key` is what is chosen; without one it can only be read. One is the `current`, if any."""

    key: str
    label: str
    detail: str = ""
    current: bool = False


def session_row(past: SessionOption) -> PickerRow:
    when = f"{past.last_at.astimezone():%Y-%m-%d %H:%M}"
    told = f"{when}, {plural(past.messages, 'message')}"
    found = f"\n  {fit(single_line(past.found), 80)}" if past.found else ""
    return PickerRow(past.id, fit(single_line(past.about), 60), told + found)


def model_row(offered: ModelOption, current: str) -> PickerRow:
    if not offered.model:
        return PickerRow("", single_line(offered.provider), fit(single_line(offered.trouble), 60))
    key = f"{offered.model} --provider {offered.provider}"
    name = f"{offered.provider}/{offered.model}"
    used = current in {name, offered.model}
    return PickerRow(key, single_line(name), "in use" if used else "", used)


FindRows = Callable[[str], Awaitable[Sequence[PickerRow]]]


class Picker(ModalScreen[str | None]):
    CSS = """
    Picker { align: center middle; }
    Picker > Vertical {
        width: 90%; max-width: 90; height: auto; max-height: 90%;
        border: round $primary; background: $surface; padding: 0 1;
    }
    Picker Input { border: none; height: 1; padding: 0; background: $panel; margin: 0 0 1 0; }
    Picker OptionList {
        height: auto; max-height: 14; border: none; padding: 0; background: $surface;
        scrollbar-size-vertical: 1;
    }
    Picker OptionList > .option-list--option-highlighted { text-style: bold reverse; }
    Picker OptionList:nocolor > .option-list--option-highlighted { text-style: bold underline; }
    Picker Input:nocolor > .input--cursor { text-style: underline; }
    Picker .told { color: $foreground 60%; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c", "dismiss(None)", show=False)]

    def __init__(self, title: str, find: FindRows, empty: str, none: str = "") -> None:
        """`find` gets what is typed; `empty` is told when nothing fits, `none` for no words."""
        super().__init__()
        self._title = title
        self._find = find
        self._empty = empty
        self._none = none or empty
        self._rows: list[PickerRow] = []

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = self._title
            yield Input(placeholder="Type to search")
            yield OptionList(markup=False)
            yield Static("Looking…", markup=False, classes="told")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self._look("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._look(event.value)

    def _look(self, words: str) -> None:
        # Made when its turn comes: the next letter may end it before it began.
        self.run_worker(partial(self._search, words), exclusive=True)

    async def _search(self, words: str) -> None:
        told = self.query_one(".told", Static)
        try:
            self._rows = list(await self._find(words))
        except HermesError as error:
            told.update(Content(error.sentence))
            return
        rows = self.query_one(OptionList)
        rows.clear_options()
        rows.add_options([_option(row) for row in self._rows])
        chosen = [place for place, row in enumerate(self._rows) if row.key]
        current = [place for place in chosen if self._rows[place].current]
        rows.highlighted = next(iter([*current, *chosen]), None)
        empty = self._empty if words.strip() else self._none
        told.update(Content("Enter chooses, Esc goes back." if chosen else empty))

    def on_key(self, event: events.Key) -> None:
        rows = self.query_one(OptionList)
        moves = {
            "up": rows.action_cursor_up,
            "down": rows.action_cursor_down,
            "pageup": rows.action_page_up,
            "pagedown": rows.action_page_down,
        }
        if event.key in moves:
            event.stop()
            event.prevent_default()
            moves[event.key]()

    @on(Input.Submitted)
    def _entered(self) -> None:
        place = self.query_one(OptionList).highlighted
        if place is not None and self._rows:
            self.dismiss(self._rows[place].key or None)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._rows[event.option_index].key or None)


def _option(row: PickerRow) -> Option:
    text = Content.assemble(row.label, (f"  {row.detail}" if row.detail else "", "dim"))
    return Option(text, disabled=not row.key)


def session_picker(house: ChatDeps, current: str) -> Picker:
    """All but the current one."""

    async def find(words: str) -> Sequence[PickerRow]:
        found = await house.side_worker.run(lambda: house.client.sessions(words))
        return [session_row(one) for one in found if one.id != current]

    none = "There is no other session yet. Esc goes back."
    return Picker("Sessions", find, "No session fits.", none)


def model_picker(house: ChatDeps, current: str) -> Picker:
    """The one in use is marked."""
    offered: list[ModelOption] = []

    async def find(words: str) -> Sequence[PickerRow]:
        if not offered:
            offered.extend(await house.side_worker.run(house.client.models))
        rows = [model_row(one, current) for one in offered]
        return [row for row in rows if words.lower() in row.label.lower()]

    return Picker("Models", find, "No model fits, or none can be reached; /model NAME takes any.")
