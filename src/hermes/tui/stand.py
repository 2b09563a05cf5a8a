"""The program that a thing on the screen belongs to."""

from textual.app import App
from textual.message_pump import MessagePump


def app_of(thing: MessagePump) -> App[object]:
    return thing.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - the library leaves open what a program results in
