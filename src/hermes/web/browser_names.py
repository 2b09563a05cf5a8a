"""The name of a browser and its system for people, from its `User-Agent` header."""

import re

_BROWSERS = (
    ("Edge", r"Edg(?:e|A|iOS)?/(\d+)"),
    ("Opera", r"OPR/(\d+)"),
    ("Samsung Internet", r"SamsungBrowser/(\d+)"),
    ("Firefox", r"(?:Firefox|FxiOS)/(\d+)"),
    ("Chrome", r"(?:Chrome|HeadlessChrome|CriOS)/(\d+)"),
    ("Safari", r"Version/(\d+)\S* (?:Mobile/\S+ )?Safari/"),
)
"""Checked in this order, because most browsers also name others."""
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows NT"),
    ("ChromeOS", "CrOS"),
    ("macOS", "Mac OS X"),
    ("Linux", "Linux"),
)


def browser_name(agent: str) -> str:
    """Return a name such as `Firefox 140, Linux`; the header itself for an unknown browser."""
    named = ((name, re.search(pattern, agent)) for name, pattern in _BROWSERS)
    browser = next((f"{name} {match[1]}" for name, match in named if match), "")
    system = next((name for name, word in _SYSTEMS if word in agent), "")
    return ", ".join(filter(None, [browser, system])) if browser else agent
