"""Times on pages: the browser shows them in its own zone and language."""

from datetime import datetime

from hermes.web.html import Html, h


def moment(at: datetime) -> Html:
    shown = at.strftime("%Y-%m-%d %H:%M UTC")
    return h("time", shown, datetime=at.isoformat())
