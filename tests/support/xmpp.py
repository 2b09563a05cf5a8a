"""Prosody for tests, and Ann, who uses slixmpp's own plugins."""

import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import SubElement

import anyio
from msgspec import Struct
from slixmpp import ClientXMPP

from hermes.channels.xmpp.channel import XmppChannel, open_channel
from hermes.channels.xmpp.stanzas import FALLBACK, REPLY
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.ports.channel import Inbound
from hermes.store.blobs import FileBlobs
from support.channel_deps import Admits, admit_all, new_deps
from support.debian import PATH
from support.mail import make_certificate
from support.ports import unused_port

PASSWORD = "of-the-account"
ROOMS = "rooms.localhost"
TIMEOUT = 20.0
MAX_TRIES = 5
IN_USE = "Failed to open server port"
PROSODY = """
pidfile = "{base}/pid"
data_path = "{base}/data"
run_as_root = true
log = {{ info = "{base}/log" }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
s2s_ports = {{}}
http_ports = {{ {http_port} }}
https_ports = {{}}
ssl = {{ certificate = "{base}/cert.pem", key = "{base}/key.pem" }}
modules_enabled = {{ "roster", "saslauth", "tls", "disco", "ping", "mam", "smacks" }}
modules_disabled = {{ "s2s" }}
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
authentication = "internal_plain"
storage = "internal"
default_archive_policy = true
http_host = "localhost"
http_external_url = "http://localhost:{http_port}/"
VirtualHost "localhost"
Component "{rooms}" "muc"
  modules_enabled = {{ "muc_mam" }}
  muc_log_by_default = true
  muc_room_default_public_jids = true
Component "upload.localhost" "http_file_share"
"""


class Prosody(Struct, frozen=True):
    port: int
    folder: Path

    def new_account(self, name: str = "") -> str:
        """Create an account with the usual password; return its address."""
        user = name or new_id("u").replace("_", "-").lower()
        accounts = self.folder / "data" / "localhost" / "accounts"
        accounts.mkdir(parents=True, exist_ok=True)
        (accounts / f"{user.replace('-', '%2d')}.dat").write_text(
            f'return {{ ["password"] = "{PASSWORD}"; }};\n'
        )
        return f"{user}@localhost"


@contextmanager
def run_prosody() -> Generator[Prosody]:
    """Run prosody until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="prosody-") as folder:
        base = Path(folder)
        make_certificate(base)
        # A port that was free may be taken before prosody listens.
        for _ in range(MAX_TRIES):
            ports = (unused_port(), unused_port())
            with _running(base, *ports) as process:
                if _listens(process, base, ports):
                    yield Prosody(ports[0], base)
                    return
        raise AssertionError(f"prosody does not start: {(base / 'out').read_text()[-800:]}")


@contextmanager
def _running(base: Path, port: int, http_port: int) -> Generator[subprocess.Popen[bytes]]:
    (base / "log").write_text("")
    config = base / "prosody.cfg.lua"
    config.write_text(PROSODY.format(base=base, port=port, http_port=http_port, rooms=ROOMS))
    program = shutil.which("prosody", path=PATH) or "prosody"
    with (base / "out").open("wb") as out:
        process = subprocess.Popen(
            [program, "--config", str(config), "-F"], stdout=out, stderr=out, cwd=base
        )
    with process:
        try:
            yield process
        finally:
            process.terminate()


def _listens(process: subprocess.Popen[bytes], base: Path, ports: Sequence[int]) -> bool:
    """Wait until all ports accept connections; False if one of them was taken."""
    end = time.monotonic() + TIMEOUT
    left = list(ports)
    while left and time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", left[0]), 1).close()
            left.pop(0)
        except OSError:
            time.sleep(0.05)
        if IN_USE in (base / "log").read_text():
            return False
    return not left


class Person:
    """Somebody with a client of their own; `messages` are those that it got."""

    def __init__(self, jid: str) -> None:
        self.jid = jid
        self.messages: list[Any] = []
        self.changed = anyio.Event()
        self.client: Any = ClientXMPP(
            f"{jid}/phone", PASSWORD, ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        client = self.client
        client.enable_direct_tls = client.enable_starttls = False
        client.enable_plaintext = True
        client.plugin["feature_mechanisms"].unencrypted_plain = True
        client.plugin["feature_mechanisms"].use_mech = "PLAIN"
        for name in (
            "xep_0030", "xep_0045", "xep_0085", "xep_0184", "xep_0199", "xep_0308", "xep_0359",
            "xep_0444", "xep_0461", "xep_0066", "xep_0363",
        ):  # fmt: skip
            client.register_plugin(name)
        for event in ("message", "chatstate", "reactions", "groupchat_message", "receipt_received"):
            client.add_event_handler(event, self._take)

    def _take(self, message: Any) -> None:
        if not any(message is one for one in self.messages):
            self.messages.append(message)
        self.changed.set()
        self.changed = anyio.Event()

    async def log_in(self, port: int) -> None:
        started = anyio.Event()
        self.client.add_event_handler("session_start", lambda event: started.set())
        self.client.connect("127.0.0.1", port)
        with anyio.fail_after(TIMEOUT):
            await started.wait()
        self.client.send_presence()

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(TIMEOUT):
            while not condition():
                await self.changed.wait()

    async def synced(self) -> None:
        """Return once everything has arrived that was sent before."""
        await self.client.plugin["xep_0199"].ping("localhost", timeout=TIMEOUT)

    async def upload(self, name: str, data: bytes) -> str:
        """Put a picture on the server; return its address."""
        uploads = self.client.plugin["xep_0363"]
        return await uploads.upload_file(
            Path(name),
            len(data),
            "image/png",
            input_file=BytesIO(data),
            domain="upload.localhost",
        )

    def write(self, to: str, text: str, kind: str = "chat", **more: str) -> str:
        """Write a message; return its id."""
        message = self.client.make_message(mto=to, mbody=text, mtype=kind)
        message["id"] = more.get("id") or new_id("ann")
        if "replaces" in more:
            message["replace"]["id"] = more["replaces"]
        if "reply_to" in more:
            message["reply"]["id"] = more["reply_to"]
            message["reply"]["to"] = to
        if "oob" in more:
            message["oob"]["url"] = more["oob"]
        if "quoted_until" in more:
            quoted = SubElement(message.xml, f"{{{FALLBACK}}}fallback", {"for": REPLY})
            end = more["quoted_until"]
            SubElement(quoted, f"{{{FALLBACK}}}body", {"start": "0", "end": end})
        message.send()
        return message["id"]

    def texts(self, sender: str) -> list[str]:
        """Texts of the sender, with corrections applied."""
        shown: dict[str, str] = {}
        for one in self.messages:
            if one["from"].bare != sender.partition("/")[0] or not one["body"]:
                continue
            if "/" in sender and one["from"].full != sender:
                continue
            shown[one["replace"]["id"] or one["id"]] = one["body"]
        return list(shown.values())


@asynccontextmanager
async def person(server: Prosody, jid: str = "") -> AsyncGenerator[Person]:
    one = Person(jid or server.new_account())
    await one.log_in(server.port)
    try:
        yield one
    finally:
        with anyio.move_on_after(2):
            await one.client.disconnect(wait=0.5)
        one.client.abort()


class XmppBench(Struct, frozen=True):
    channel: XmppChannel
    jid: str
    records: Path
    blobs: FileBlobs


@asynccontextmanager
async def xmpp_bench(
    folder: Path,
    server: Prosody,
    extra: Mapping[str, object] | None = None,
    *,
    jid: str = "",
    port: int = 0,
    clock: Clock | None = None,
    admits: Admits = admit_all,
    env: Mapping[str, str] | None = None,
) -> AsyncGenerator[XmppBench]:
    own = jid or server.new_account()
    settings = {
        "jid": own, "password": PASSWORD, "host": "127.0.0.1", "port": port or server.port,
        "use_tls": False, **(extra or {}),
    }  # fmt: skip
    deps = new_deps("xmpp", folder, extra=settings, env=env or {}, clock=clock, admits=admits)
    async with open_channel(deps) as channel:
        blobs = FileBlobs(folder / "cache" / "blobs")
        yield XmppBench(channel, own, folder / "xmpp" / "account.json", blobs)


async def ignore(update: Inbound) -> None:
    """Drop what arrives."""


async def recorded(one: XmppBench, message: str) -> None:
    """Return once the channel has stored that the message is handled."""
    while not one.records.exists() or f':{message}"' not in one.records.read_text():  # noqa: ASYNC110 - another task writes the file
        await anyio.sleep(0.005)


async def listening_to(one: XmppBench, room: str = "") -> None:
    """Return once the channel has read its archive: then a message cannot be an old one."""
    archive = f'"{room or one.jid}":{{"id"'
    while not one.records.exists() or archive not in one.records.read_text():  # noqa: ASYNC110 - another task writes the file
        await anyio.sleep(0.005)
