"""The number of commits of a chat completion."""

from pathlib import Path

import pytest

from hermes.kit.failpoints import watch_failpoints
from support.api_server import api_harness

pytestmark = pytest.mark.anyio

COMMITS = 2
"""One for the question and the start of the turn, one for the answer and the end."""


@pytest.mark.parametrize("stream", [True, False])
async def test_completion_takes_two_commits(tmp_path: Path, *, stream: bool) -> None:
    reached: list[str] = []
    async with api_harness(tmp_path) as harness:
        for number in range(3):
            with watch_failpoints(reached.append):
                text = f"hi {number}"
                body = {"messages": [{"role": "user", "content": text}], "stream": stream}
                response = await harness.chat(body)
            assert response.status == 200
            assert reached.count("writer.after_commit") == COMMITS
            reached.clear()
