"""Bars for charts in text."""

_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(value: float, maximum: float, width: int) -> str:
    """A bar of at most `width` characters; anything above zero is visible."""
    if value <= 0 or maximum <= 0:
        return ""
    eighths = max(round(8 * width * min(value / maximum, 1.0)), 1)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
