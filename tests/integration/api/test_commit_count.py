"""The number of commits of a chat completion."""

import threading
from pathlib import Path

import pytest

from hermes.kit.failpoints import watch_failpoints
from support.api_server import api_harness

COMMITS = 2
"""One for the question and the start of the turn, one for the answer and the end."""


@pytest.mark.parametrize("stream", [True, False])
async def test_completion_takes_two_commits(tmp_path: Path, *, stream: bool) -> None:
    reached: list[str] = []
    # Failpoints are process-wide: the store of an earlier test may still be closing.
    earlier = set(threading.enumerate()) - {threading.current_thread()}

    def record(name: str) -> None:
        if threading.current_thread() not in earlier:
            reached.append(name)

    async with api_harness(tmp_path) as harness:
        for number in range(3):
            with watch_failpoints(record):
                text = f"hi {number}"
                body = {"messages": [{"role": "user", "content": text}], "stream": stream}
                response = await harness.chat(body)
            assert response.status == 200
            assert reached.count("writer.after_commit") == COMMITS
            reached.clear()
