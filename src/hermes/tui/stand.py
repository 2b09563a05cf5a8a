"""The program that a thing on the screen belongs to."""

from textual.app import App
from textual.message_pump import MessagePump


def app_of(thing: MessagePump) -> App[object]:
    # Its result differs from program to program, which the library leaves open.
    return thing.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
