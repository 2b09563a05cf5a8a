"""Those who are shown a turn, and who may be served by an agent that runs already."""

import pytest

from hermes.ipc.client import ConversationOptions, EventDisplay
from hermes.schema.events import Event, TextDelta


def test_what_cannot_be_shown_ends_the_turn_once_and_is_raised_at_the_end() -> None:
    shown: list[Event] = []
    interrupted: list[str] = []

    def show(event: Event) -> None:
        shown.append(event)
        raise BrokenPipeError

    audience = EventDisplay(show, lambda: interrupted.append("yes"))
    audience.check()
    for _ in range(3):
        audience.hear(TextDelta("x"))
    assert (len(shown), interrupted) == (1, ["yes"])
    with pytest.raises(BrokenPipeError):
        audience.check()


def test_what_only_an_agent_of_ones_own_can_do() -> None:
    assert ConversationOptions(cwd="/", resume="x", model="m", provider="p", person=True).anywhere
    assert not ConversationOptions(cwd="/", toolsets=()).anywhere
    assert not ConversationOptions(cwd="/", max_steps=3).anywhere
    assert not ConversationOptions(cwd="/", source="script").anywhere
