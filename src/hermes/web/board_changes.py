"""Tell the pages that show the board when it has changed."""

from hermes.kanban.service import BOARD_TOPIC
from hermes.web.context import ProfileWeb

INTERVAL = 1.0
"""Seconds between two notices: a page loads its content again."""


async def watch_board(profile: ProfileWeb) -> None:
    with profile.app.bus.listen(BOARD_TOPIC) as wakeups:
        while True:
            await wakeups.wait()
            wakeups.take()
            profile.feed.publish("changed", {"page": "board"})
            await profile.app.clock.sleep(INTERVAL)
