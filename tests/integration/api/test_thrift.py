"""What a chat completion costs, counted."""

from pathlib import Path

import pytest

from hermes.kit.failpoints import watch_failpoints
from support.api_server import api_harness

pytestmark = pytest.mark.anyio

COMMITS = 2
"""One for what is asked, with all that begins the turn; one for the answer and the end."""


@pytest.mark.parametrize("stream", [True, False])
async def test_a_completion_is_two_commits(tmp_path: Path, *, stream: bool) -> None:
    reached: list[str] = []
    async with api_harness(tmp_path) as one:
        for number in range(3):
            with watch_failpoints(reached.append):
                text = f"hi {number}"
                body = {"messages": [{"role": "user", "content": text}], "stream": stream}
                told = await one.chat(body)
            assert told.status == 200
            assert reached.count("writer.after_commit") == COMMITS
            reached.clear()
