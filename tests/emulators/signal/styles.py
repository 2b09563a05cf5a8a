"""Read texts with styles as Signal's clients do: ranges of UTF-16 units."""

STYLES = frozenset({"BOLD", "ITALIC", "STRIKETHROUGH", "MONOSPACE", "SPOILER"})


def styled_parts(text: str, styles: list[str]) -> list[tuple[str, str]]:
    """The styles with the text that each has. Raises `ValueError` for a range that is invalid."""
    units = text.encode("utf-16-le")
    parts: list[tuple[str, str]] = []
    for one in styles:
        start, length, style = one.split(":")
        begin, end = 2 * int(start), 2 * (int(start) + int(length))
        if style not in STYLES or not 0 <= begin < end <= len(units):
            raise ValueError(f"{one} in a text of {len(units) // 2} units")
        # A range that cuts a character in two cannot be decoded.
        parts.append((style, units[begin:end].decode("utf-16-le")))
    return parts
