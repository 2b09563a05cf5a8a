"""Whoever has lost a session changes nothing in it: what somebody else does there counts."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from support.api_server import ApiHarness, api_harness
from support.cli_process import TEST_TIMEOUT
from support.lost_lease import LeaseLosingRunner

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def overtaken(folder: Path) -> AsyncGenerator[ApiHarness]:
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(folder) as one:
            assert (await one.ask("POST", "/api/sessions", b'{"id": "s"}')).status == 201
            assert (
                await one.ask("POST", "/api/sessions/s/chat", b'{"message": "hi"}')
            ).status == 200
            own = one.app.runner
            one.app.runner = LeaseLosingRunner(one.app)  # type: ignore[assignment]
            try:
                yield one
            finally:
                one.app.runner = own


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/api/sessions/s", None),
        ("POST", "/api/sessions/s/fork", b"{}"),
        (
            "POST",
            "/v1/runs",
            msgspec.json.encode(
                {
                    "session_id": "s",
                    "input": [
                        {"role": "user", "content": "Where?"},
                        {"role": "assistant", "content": "There."},
                        {"role": "user", "content": "And now?"},
                    ],
                }
            ),
        ),
    ],
)
async def test_who_lost_the_session_writes_nothing(
    tmp_path: Path, method: str, path: str, body: bytes | None
) -> None:
    async with overtaken(tmp_path) as one:
        before = await one.said("s")
        told = await one.ask(method, path, body)
        assert (told.status, told.headers["retry-after"]) == (409, "1")
        assert told.code == "lease_lost"
        assert await one.said("s") == before
        assert [found.session.id for found in await one.sessions()] == ["s"]
        shown = await one.ask("GET", "/api/sessions/s")
        assert shown.json["ended_at"] is None
