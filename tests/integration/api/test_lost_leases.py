"""A turn that has lost its session lease stores nothing more."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from support.api_server import ApiHarness, api_harness
from support.cli_process import TEST_TIMEOUT
from support.lost_lease import LeaseLosingRunner


@asynccontextmanager
async def overtaken(folder: Path) -> AsyncGenerator[ApiHarness]:
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(folder) as harness:
            assert (await harness.ask("POST", "/api/sessions", b'{"id": "s"}')).status == 201
            assert (
                await harness.ask("POST", "/api/sessions/s/chat", b'{"message": "hi"}')
            ).status == 200
            own = harness.app.runner
            harness.app.runner = LeaseLosingRunner(harness.app)  # type: ignore[assignment]
            try:
                yield harness
            finally:
                harness.app.runner = own


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
async def test_turn_without_its_lease_stores_nothing(
    tmp_path: Path, method: str, path: str, body: bytes | None
) -> None:
    async with overtaken(tmp_path) as harness:
        before = await harness.messages("s")
        response = await harness.ask(method, path, body)
        assert (response.status, response.headers["retry-after"]) == (409, "1")
        assert response.code == "lease_lost"
        assert await harness.messages("s") == before
        assert [found.session.id for found in await harness.sessions()] == ["s"]
        shown = await harness.ask("GET", "/api/sessions/s")
        assert shown.session["ended_at"] is None
