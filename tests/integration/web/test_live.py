"""Live turns are rendered only for sessions that a page shows."""

from pathlib import Path

import pytest

from hermes.schema.messages import Text
from hermes.session.conversation import SessionOptions
from hermes.testing.fake_openai.script import Reply, Script
from support.web_page import WebHarness, web_harness

pytestmark = pytest.mark.anyio


async def kinds_after(web: WebHarness, session: str, position: str) -> list[str]:
    feed = web.server.context.profiles["default"].feed
    async for batch in feed.follow(session, position):
        return [one.kind for one in batch]
    return []


async def test_turn_that_nobody_watches_is_not_rendered(tmp_path: Path):
    script = Script(replies=[Reply("Hello."), Reply("Hello again.")])
    async with web_harness(tmp_path, script) as web:
        feed = web.server.context.profiles["default"].feed
        terminal = web.app.new_conversation(SessionOptions(source="cli"))
        start = feed.position
        await terminal.submit([Text("hi")], web.ignore)
        session = terminal.session.id
        assert "entry" not in await kinds_after(web, "", start)
        assert await kinds_after(web, session, start) == ["reset"]

        feed.expect(session)
        start = feed.position
        await terminal.submit([Text("hi again")], web.ignore)
        assert (await kinds_after(web, session, start)).count("entry") >= 2
