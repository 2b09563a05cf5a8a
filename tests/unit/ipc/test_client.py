"""The event display, and which conversations a running gateway can serve."""

from hermes.ipc.client import ConversationOptions, EventDisplay
from hermes.schema.events import Event, TextDelta


def test_display_error_interrupts_once_and_is_raised_at_the_end() -> None:
    shown: list[Event] = []
    interrupted: list[str] = []

    def show(event: Event) -> None:
        shown.append(event)
        raise BrokenPipeError

    display = EventDisplay(show, lambda: interrupted.append("yes"))
    assert display.error is None
    for _ in range(3):
        display.on_event(TextDelta("x"))
    assert (len(shown), interrupted) == (1, ["yes"])
    assert isinstance(display.error, BrokenPipeError)


def test_options_that_need_an_agent_in_this_process() -> None:
    assert ConversationOptions(
        cwd="/", resume="x", model="m", provider="p", person=True
    ).works_with_gateway
    assert not ConversationOptions(cwd="/", toolsets=()).works_with_gateway
    assert not ConversationOptions(cwd="/", max_steps=3).works_with_gateway
    assert not ConversationOptions(cwd="/", source="script").works_with_gateway
