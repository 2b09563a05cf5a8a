"""Colours: dark or light. Without colour everything is told by signs and words as well."""

from textual.theme import Theme

DARK = Theme(
    name="hermes-dark",
    primary="#7aa2f7",
    secondary="#9aa5ce",
    accent="#7dcfff",
    warning="#e0af68",
    error="#f7768e",
    success="#9ece6a",
    foreground="#d5d9e6",
    background="#16171d",
    surface="#1c1e26",
    panel="#252833",
    dark=True,
)
LIGHT = Theme(
    name="hermes-light",
    primary="#2f5bd0",
    secondary="#4a5578",
    accent="#00708f",
    warning="#8a5a00",
    error="#b3243f",
    success="#3b7a12",
    foreground="#22252e",
    background="#fbfbf9",
    surface="#f1f1ed",
    panel="#e4e4de",
    dark=False,
)
THEMES = {"dark": DARK, "light": LIGHT}


def other(name: str) -> str:
    """The name of the theme that is not this one."""
    return LIGHT.name if name == DARK.name else DARK.name
