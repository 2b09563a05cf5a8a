"""An interrupted turn leaves no claims behind, whether its client left or the server was killed."""

import logging
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import aiohttp
import anyio
import msgspec
import pytest

from hermes.testing.fake_openai.server import serve
from support.api_runs import SCRIPT
from support.api_server import KEY, ApiHarness, api_harness, api_process
from support.cli_process import TEST_TIMEOUT
from support.gateway import wait_until

HEADERS = {"Authorization": f"Bearer {KEY}", "X-Hermes-Session-Id": "s"}
CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hang"}]})
REQUESTS = [
    CHAT,
    ("/v1/chat/completions", CHAT[1] | {"stream": True}),
    ("/v1/responses", {"input": "hang"}),
    ("/v1/runs", {"input": "hang"}),
]
IDS = ["chat", "stream", "response", "run"]


def unsettled(home: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(home / "hermes.db")) as database:
        rows = database.execute("SELECT topic, state FROM queue_items WHERE state IN (0, 1)")
        return rows.fetchall()


async def ask(http: aiohttp.ClientSession, url: str, body: object) -> None:
    try:
        async with http.post(url, json=body, headers=HEADERS) as response:
            await response.read()
    except aiohttp.ClientError:
        return


@pytest.mark.parametrize(("path", "body"), REQUESTS, ids=IDS)
async def test_kill_leaves_no_claims_and_nothing_runs_twice(
    tmp_path: Path, path: str, body: object
) -> None:
    async with serve(SCRIPT) as mock, aiohttp.ClientSession() as http:
        with anyio.fail_after(TEST_TIMEOUT):
            async with anyio.create_task_group() as group, api_process(tmp_path, mock.url) as url:
                group.start_soon(ask, http, url + path, body)
                await wait_until(lambda: bool(mock.requests))
        assert unsettled(tmp_path) == [("s", 1)]
        before = len(mock.requests)
        with anyio.fail_after(TEST_TIMEOUT):
            async with api_process(tmp_path, mock.url) as url:
                # It is settled before the first request is served.
                assert unsettled(tmp_path) == []
                words = f"{url}/api/sessions/s/messages"
                async with http.get(words, headers=HEADERS) as response:
                    listed = (await response.json())["data"]
                assert [row["content"] for row in listed] == ["hang"]
        assert len(mock.requests) == before


@pytest.mark.parametrize(("path", "body"), REQUESTS[:3], ids=IDS[:3])
async def test_disconnect_leaves_no_claims_but_a_log_record(
    tmp_path: Path, path: str, body: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes.session.recorder")

    async def hang_up(harness: ApiHarness) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, harness.http, harness.url + path, body)
            await wait_until(lambda: bool(harness.model_server.requests))
            group.cancel_scope.cancel()

    async with api_harness(tmp_path, SCRIPT) as harness:
        with anyio.fail_after(TEST_TIMEOUT):
            await hang_up(harness)
            await harness.server.turn_gate.wait_idle()
        response = await harness.ask("GET", "/api/sessions/s/messages")
        assert msgspec.json.decode(response.body)["data"]
        assert unsettled(tmp_path) == []
        records = [one for one in caplog.records if one.name == "hermes.session.recorder"]
        (ended,) = [one.getMessage() for one in records]
        assert re.fullmatch(r"turn (run|resp)_\w+: cancelled, 1 step, 0 tokens in, 0 out", ended)
