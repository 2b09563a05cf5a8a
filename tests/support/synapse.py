"""A pytest plugin that runs one real Synapse for all tests that ask for `homeserver`.

It is started before the tests and is ready while others run; workers of `--jobs` share it.
"""

import base64
import hmac
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from msgspec import Struct

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".venv-synapse"
STAMP = PROGRAM / ".installed"
FIXTURE = "homeserver"
WAIT = 90.0
SECRET = "s"
MISSING = "Synapse is not installed; `make test` installs it into .venv-synapse"
_HIGH = {"per_second": 100_000, "burst_count": 100_000}


class Homeserver(Struct, frozen=True):
    url: str


class _Process(Struct, frozen=True):
    server: Homeserver
    process: "subprocess.Popen[bytes]"
    folder: Path


_KEY = pytest.StashKey[_Process]()


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any(FIXTURE in getattr(item, "fixturenames", ()) for item in session.items)
    if (
        wanted
        and not os.environ.get("DEV_SYNAPSE")
        and STAMP.exists()
        and not session.config.getoption("collectonly")
    ):
        folder = session.config._tmp_path_factory.getbasetemp() / "synapse"
        session.config.stash[_KEY] = start(folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    running = config.stash.get(_KEY, None)
    if running is not None:
        stop(running)


@pytest.fixture(scope="session")
def homeserver(pytestconfig: pytest.Config) -> Homeserver:
    running = pytestconfig.stash.get(_KEY, None)
    if running is None:
        if os.environ.get("HERMES_PACKAGES") == "required":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return wait_until_ready(running)


def start(folder: Path, limits: Mapping[str, object] | None = None) -> _Process:
    """Start a server with a database of its own."""
    folder.mkdir(parents=True)
    port = _free_port()
    config = folder / "homeserver.yaml"
    # YAML includes JSON.
    config.write_text(json.dumps(_settings(folder, port, limits or {})))
    program = [str(PROGRAM / "bin" / "python"), "-m", "synapse.app.homeserver", "-c", str(config)]
    key = base64.b64encode(os.urandom(32)).decode().rstrip("=")
    (folder / "signing.key").write_text(f"ed25519 a_test {key}\n")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(program, stdout=log, stderr=log, cwd=folder)
    return _Process(Homeserver(f"http://127.0.0.1:{port}"), process, folder)


def stop(running: _Process) -> None:
    running.process.terminate()
    try:
        running.process.wait(10)
    except subprocess.TimeoutExpired:
        running.process.kill()
        running.process.wait()
    shutil.rmtree(running.folder, ignore_errors=True)


def wait_until_ready(running: _Process) -> Homeserver:
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        try:
            urlopen(f"{running.server.url}/_matrix/client/versions", timeout=5).close()  # noqa: S310
        except (URLError, OSError):
            time.sleep(0.05)
        else:
            return running.server
    text = (running.folder / "log").read_text(errors="replace")[-2000:]
    pytest.fail(f"Synapse does not answer: {text}")


def register(server: Homeserver, name: str, password: str) -> dict[str, str]:
    """Create an account; return its user id, device id and access token."""
    fields = {"username": name, "password": password, "auth": {"type": "m.login.dummy"}}
    return call(server, "POST", "/_matrix/client/v3/register", fields)


def register_admin(server: Homeserver) -> str:
    """Create an administrator and return its access token."""
    path = "/_synapse/admin/v1/register"
    nonce, name = call(server, "GET", path)["nonce"], f"admin-{os.getpid()}-{time.time_ns()}"
    text = f"{nonce}\0{name}\0pw\0admin".encode()
    mac = hmac.digest(SECRET.encode(), text, "sha1").hex()
    fields = {"nonce": nonce, "username": name, "password": "pw", "admin": True, "mac": mac}
    return call(server, "POST", path, fields)["access_token"]


def call(
    server: Homeserver, method: str, path: str, fields: object = None, token: str = ""
) -> dict[str, str]:
    data = None if fields is None else json.dumps(fields).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = Request(server.url + path, data, headers, method=method)  # noqa: S310
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def _settings(folder: Path, port: int, limits: Mapping[str, object]) -> dict[str, object]:
    kinds = ("rc_message", "rc_registration", "rc_room_creation", "rc_key_requests")
    return {
        "server_name": "localhost",
        "pid_file": str(folder / "pid"),
        "listeners": [
            {"port": port, "type": "http", "bind_addresses": ["127.0.0.1"],
             "resources": [{"names": ["client"], "compress": False}]}
        ],
        "database": {"name": "sqlite3", "args": {"database": str(folder / "server.db")}},
        "media_store_path": str(folder / "media"),
        "signing_key_path": str(folder / "signing.key"),
        "macaroon_secret_key": "m",
        "form_secret": "f",
        "registration_shared_secret": SECRET,
        "report_stats": False,
        "trusted_key_servers": [],
        "enable_registration": True,
        "enable_registration_without_verification": True,
        "bcrypt_rounds": 4,
        "max_upload_size": "20M",
        "presence": {"enabled": False},
        **dict.fromkeys(kinds, _HIGH),
        "rc_login": {"address": _HIGH, "account": _HIGH, "failed_attempts": _HIGH},
        "rc_invites": {"per_room": _HIGH, "per_user": _HIGH, "per_issuer": _HIGH},
        "rc_joins": {"local": _HIGH, "remote": _HIGH},
        **limits,
    }  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
