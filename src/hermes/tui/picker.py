"""A searchable list for choosing a session or a model."""

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
from hermes.tui.chat_deps import ChatDeps
from hermes.tui.client import ModelOption, SessionOption
from hermes.tui.input_history import InputHistory
from hermes.tui.widgets import consume


class PickerRow(Struct, frozen=True):
    """One row; a row without a `key` cannot be chosen."""

    key: str
    label: str
    detail: str = ""
    current: bool = False


def session_row(option: SessionOption) -> PickerRow:
    when = f"{option.last_at.astimezone():%Y-%m-%d %H:%M}"
    status = f"{when}, {plural(option.messages, 'message')}"
    found = f"\n  {fit(single_line(option.snippet), 80)}" if option.snippet else ""
    return PickerRow(option.id, fit(single_line(option.title), 60), status + found)


def model_row(option: ModelOption, current: str) -> PickerRow:
    if not option.model:
        return PickerRow("", single_line(option.provider), fit(single_line(option.error), 60))
    key = f"{option.model} --provider {option.provider}"
    name = f"{option.provider}/{option.model}"
    used = current in {name, option.model}
    return PickerRow(key, single_line(name), "in use" if used else "", used)


_MAX_HISTORY = 200
"""Typed lines that are listed."""
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
    Picker .status { color: $foreground 60%; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c", "dismiss(None)", show=False)]

    def __init__(
        self, title: str, find: FindRows, empty: str, none: str = "", *, query: str = ""
    ) -> None:
        """`empty` is shown if nothing matches, `none` if there is nothing to search."""
        super().__init__()
        self._query = query
        self._title = title
        self._find = find
        self._empty = empty
        self._none = none or empty
        self._rows: list[PickerRow] = []

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = self._title
            yield Input(self._query, placeholder="Type to search")
            yield OptionList(markup=False)
            yield Static("Searching…", markup=False, classes="status")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self._start_search(self._query)

    @on(Input.Changed)
    def _query_changed(self, event: Input.Changed) -> None:
        self._start_search(event.value)

    def _start_search(self, query: str) -> None:
        # Created lazily: the next letter may cancel it before it starts.
        self.run_worker(partial(self._search, query), exclusive=True)

    async def _search(self, query: str) -> None:
        status = self.query_one(".status", Static)
        try:
            self._rows = list(await self._find(query))
        except HermesError as error:
            status.update(Content(error.sentence))
            return
        rows = self.query_one(OptionList)
        rows.clear_options()
        rows.add_options([_option(row) for row in self._rows])
        chosen = [index for index, row in enumerate(self._rows) if row.key]
        current = [index for index in chosen if self._rows[index].current]
        rows.highlighted = next(iter([*current, *chosen]), None)
        empty = self._empty if query.strip() else self._none
        status.update(Content("Enter selects, Esc cancels." if chosen else empty))

    def on_key(self, event: events.Key) -> None:
        rows = self.query_one(OptionList)
        moves = {
            "up": rows.action_cursor_up,
            "down": rows.action_cursor_down,
            "pageup": rows.action_page_up,
            "pagedown": rows.action_page_down,
        }
        if event.key in moves:
            consume(event)
            moves[event.key]()

    @on(Input.Submitted)
    def _query_submitted(self) -> None:
        index = self.query_one(OptionList).highlighted
        if index is not None and self._rows:
            self.dismiss(self._rows[index].key or None)

    @on(OptionList.OptionSelected)
    def _option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._rows[event.option_index].key or None)


def _option(row: PickerRow) -> Option:
    text = Content.assemble(row.label, (f"  {row.detail}" if row.detail else "", "dim"))
    return Option(text, disabled=not row.key)


def session_picker(deps: ChatDeps, current: str) -> Picker:
    """All sessions but the current one."""

    async def find(query: str) -> Sequence[PickerRow]:
        found = await deps.side_worker.run(lambda: deps.client.sessions(query))
        return [session_row(option) for option in found if option.id != current]

    none = "There are no other sessions yet. Esc cancels."
    return Picker("Sessions", find, "No session matches.", none)


def history_picker(history: InputHistory, typed: str) -> Picker:
    """Lines typed before, the last one first."""

    async def find(query: str) -> Sequence[PickerRow]:
        wanted = query.casefold()
        lines = [line for line in history.newest_first() if wanted in line.casefold()]
        return [PickerRow(line, fit(single_line(line), 80)) for line in lines[:_MAX_HISTORY]]

    none = "Nothing was typed yet. Esc cancels."
    return Picker("Input history", find, "No line matches.", none, query=typed.strip())


def model_picker(deps: ChatDeps, current: str) -> Picker:
    """All models; the current one is marked."""
    options: list[ModelOption] = []

    async def find(query: str) -> Sequence[PickerRow]:
        if not options:
            options.extend(await deps.side_worker.run(deps.client.models))
        rows = [model_row(option, current) for option in options]
        return [row for row in rows if query.lower() in row.label.lower()]

    return Picker(
        "Models", find, "No model matches, or none is reachable; /model NAME accepts any."
    )
