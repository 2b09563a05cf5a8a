"""Times and durations on pages: the browser shows times in its own zone and language."""

from datetime import datetime

from hermes.web.html import Html, h
from hermes.web.texts import text


def moment(at: datetime) -> Html:
    shown = at.strftime("%Y-%m-%d %H:%M UTC")
    return h("time", shown, datetime=at.isoformat())


def duration(seconds: float) -> str:
    if seconds < 60:
        return text("unit_seconds", count=f"{seconds:.1f}")
    return text("unit_minutes", count=f"{seconds / 60:.1f}")
