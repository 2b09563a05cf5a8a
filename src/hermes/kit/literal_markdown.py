"""Write Markdown that is shown as the given text, without any markup."""

import re

_SPECIAL = re.compile(
    # A backslash after a URL would become part of it.
    r"(https?://[^\s<]+)|[\\*_~`|\[\]]|^ {0,3}(?:#{1,6}(?=[ \t]|$)|[-+](?=[ \t]|$)|-(?=-)|=|>)"
    r"|^ {0,3}\d+(?=[.)](?:[ \t]|$))",
    re.MULTILINE,
)
_INDENT = re.compile(r"^(?: {0,3}\t| {4})[ \t]*", re.MULTILINE)


def literal_markdown(text: str) -> str:
    """Escape markup, except within URLs; indentation that would mean code is kept as space."""
    lines = re.sub(r"\r\n?", "\n", text)
    return _SPECIAL.sub(_escaped, _INDENT.sub(_fixed_spaces, lines))


def _fixed_spaces(found: re.Match[str]) -> str:
    return found[0].expandtabs(4).replace(" ", "\u00a0")


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    if found[1]:
        return sign
    bare = sign.lstrip(" ")
    indent = sign[: len(sign) - len(bare)]
    return f"{sign}\\" if bare.isdecimal() else f"{indent}\\{bare}"
