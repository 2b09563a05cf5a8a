"""Open a home that an older version left in the middle of its work, and finish that work.

The database was written by a gateway process of commit 5ee6d2c, which was then killed. It holds a
guest's message that was being answered and another one that waits, a command of the owner that
waits for approval, a reply that was not sent, and the journal of an API run.
"""

import gzip
import json
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import anyio
import apsw

from support.chat_platform.model import ModelCall
from support.chat_platform.server import PlatformServer, serve_platform
from support.cli_process import TEST_TIMEOUT
from support.gateway_instances import gateway_instance
from support.gateway_process import single_profile_spec

ACCOUNT = "main"
API_KEY = "5f3c9a7e21d84b06a1c2e3f4d5b6a798"
DATABASE = Path(__file__).parent / "data" / "state-5ee6d2c.db.gz"
KILLED_PROCESS = "vm/7e619cf7-5d07-48b0-85db-df7298130512.4026531836/18827/1401946"
RUN = "run_6cf4b94672ca41108c6c8e9a5cd6427e"
FOREVER = 10**9
WRITTEN_AT = 1_794_885_938_000_000
"""When the process was killed, in microseconds."""
REPLY_WRITTEN_AT = "2026-11-17T03:25:38.626882Z"
"""The time in the body of the reply that was not sent."""
UPDATES = 4
"""Updates that the killed process had stored; the platform numbers them from zero again."""
PRINT_PROCESS = "from hermes.kit.ids import process_id; print(process_id())"


def dead_process() -> str:
    command = [sys.executable, "-c", PRINT_PROCESS]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def unpack_home(home: Path, port: int) -> None:
    """Put the database into the home, as if its process had died on this machine."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "state.db"
    path.write_bytes(gzip.decompress(DATABASE.read_bytes()))
    dead, age = dead_process(), time.time_ns() // 1000 - WRITTEN_AT
    with apsw.Connection(str(path)) as connection:
        for table in ("parcels", "leases", "runs", "matters"):
            update = f"UPDATE {table} SET holder = replace(holder, ?, ?)"  # noqa: S608 - our own names
            connection.execute(update, (KILLED_PROCESS, dead))
            # As if it had happened just now: old rows are pruned.
            for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                shift = f"UPDATE {table} SET {column} = {column} + ? WHERE {column} > ?"  # noqa: S608 - our own names
                shift += f" AND typeof({column}) = 'integer'"
                connection.execute(shift, (age, WRITTEN_AT - 10**9))
        body = "CAST(replace(CAST(body AS TEXT), ?, ?) AS BLOB)"
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        connection.execute(f"UPDATE parcels SET body = {body}", (REPLY_WRITTEN_AT, now))  # noqa: S608 - our own names
    file = home / "config.yaml"
    settings = json.loads(file.read_text())
    settings["platforms"]["test"]["extra"]["allow_from"] = ["ann", "*"]
    api = {"enabled": True, "extra": {"port": port, "key": API_KEY}}
    settings["platforms"]["api_server"] = api
    # Interrupted turns are resumed however old the database is.
    settings["agent"] = {"gateway_auto_continue_freshness": FOREVER}
    file.write_text(json.dumps(settings))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def tools_of(call: ModelCall) -> set[str]:
    return {tool["function"]["name"] for tool in json.loads(call.body).get("tools", [])}


def posted_text(server: PlatformServer, chat: str) -> str:
    return "\n".join(post.text for post in server.platform.posts_in(ACCOUNT, chat))


async def run_state(port: int) -> str:
    headers = {"Authorization": f"Bearer {API_KEY}"}
    url = f"http://127.0.0.1:{port}/v1/runs/{RUN}"
    async with aiohttp.ClientSession(headers=headers) as client, client.get(url) as response:
        return (await response.json())["status"]


async def test_work_of_a_killed_process_continues_with_the_same_roles(tmp_path: Path) -> None:
    calls: list[ModelCall] = []
    port = free_port()
    async with serve_platform() as server:

        def record(call: ModelCall) -> None:
            calls.append(call)
            server.changed()

        server.model.on_call = record
        spec = single_profile_spec(tmp_path, server.url, ACCOUNT)
        unpack_home(Path(spec.home), port)
        for _ in range(UPDATES):
            server.say(ACCOUNT, "other", "ann", "A duplicate of a stored update.")
        with anyio.fail_after(TEST_TIMEOUT):
            async with gateway_instance(spec) as gateway, anyio.create_task_group() as group:
                group.start_soon(gateway.watch)
                await gateway.wait_ready()
                await server.until(lambda: "re: o-1 hello" in posted_text(server, "c2"))
                await server.until(lambda: "g-2 hello" in posted_text(server, "bob"))
                server.say(ACCOUNT, "c1", "ann", "/approve")
                await server.until(lambda: "re: q-1" in posted_text(server, "c1"))
                assert await run_state(port) == "failed"
                gateway.kill()
        assert not posted_text(server, "other")
    guest = [call for call in calls if "g-2 hello" in call.question]
    owner = [call for call in calls if call.question.startswith("q-1")]
    assert guest
    assert owner
    assert all("terminal" not in tools_of(call) for call in guest)
    assert all("terminal" in tools_of(call) for call in owner)
    assert '"output":"q-1' in posted_text(server, "c1")
