"""No secret reaches the browser: pages are searched for values that must not leave the server."""

from pathlib import Path

import msgspec
import pytest

from hermes.app.service.lock import own_record, take_lock
from hermes.app.service.status import GatewayState, PlatformState, write_state
from hermes.channels import MANIFESTS
from hermes.config.setting_catalog import settings
from hermes.ports.store import EnqueueItem, QueueItem
from hermes.web.pages import all_routes
from hermes.web.pages.logs import LOGS
from support.web_client import Client, web_client

TOKEN = "4242:canary-of-the-bot-token"
SECRETS = {
    "TELEGRAM_BOT_TOKEN": TOKEN,
    "OPENROUTER_API_KEY": "sk-or-canary-of-a-variable",
    "SOME_TOKEN": "canary-of-another-variable",
    "HERMES_DASHBOARD_OIDC_CLIENT_SECRET": "canary-of-the-client",
    "IRC_CHANNEL": "#open,#closed canary-of-a-room",
}
CONFIG = {
    "dashboard": {"basic_auth": {"username": "me", "password_hash": "scrypt$canary-of-the-hash"}},
    "providers": {"mine": {"base_url": "https://model.example", "api_key": "canary-of-a-key"}},
    "platforms": {
        "discord": {"enabled": True, "token": "canary-of-the-file"},
        "irc": {"enabled": False, "extra": {"channel": ["#attic canary-of-a-key-in-a-list"]}},
        "xmpp": {"enabled": False, "extra": {"muc_rooms": "attic@muc.example canary-password"}},
    },
    "mcp_servers": {
        "wiki": {"url": "https://wiki.example/mcp?api_key=canary-of-an-address",
                 "headers": {"Authorization": "Bearer canary-of-a-header"}, "enabled": False},
        "files": {"command": "files", "args": ["--token", "canary-of-an-argument"],
                  "env": {"DATABASE": "canary-of-the-environment"}, "enabled": False},
    },
    "hooks": {"on_session_end": [{"command": "/usr/bin/notify ${SOME_TOKEN}"}]},
}  # fmt: skip


async def fill(one: Client) -> None:
    """Logs, an error of a channel, and an undeliverable message that contain secrets."""
    home, store = one.web.app.home, one.web.app.store
    words = " ".join(SECRETS.values())
    home.logs.mkdir(exist_ok=True)
    for name in LOGS:
        (home.logs / f"{name}.log").write_text(
            f"2026-01-01 10:00:00,000 ERROR a: {words} canary-of-a-room canary-of-a-key-in-a-list\n"
        )
    item = QueueItem(key="k", queue="outbox:telegram", topic="chat", body=msgspec.Raw(b"{}"))
    await store.commit(EnqueueItem(item))
    await store.queues.park("k", f"POST https://api.telegram.org/bot{TOKEN}/sendMessage failed")


async def test_no_page_contains_a_secret(tmp_path: Path):
    (tmp_path / ".env").write_text("".join(f"{k}={v}\n" for k, v in SECRETS.items()))
    async with web_client(tmp_path, config=msgspec.json.encode(CONFIG).decode()) as one:
        await fill(one)
        home = one.web.app.home
        failed = PlatformState(
            state="retrying", error_code="offline", error_message=f"GET /bot{TOKEN}/getMe failed"
        )
        record = own_record(home, one.web.app.clock.now())
        state = GatewayState(pid=record.pid, gateway_state="running",
                             platforms={"telegram": failed})  # fmt: skip
        routes = all_routes(one.web.server.context, lambda: pytest.fail("not asked for"))
        paths = {route.path for route in routes if route.method == "GET"} - {"/events"}
        paths = {path for path in paths if "{" not in path}
        paths |= {f"/settings/channels/{name}" for name in MANIFESTS}
        paths |= {f"/settings?section={one.section}" for one in settings()}
        paths |= {f"/logs?log={name}" for name in LOGS}
        paths |= {"/settings?section=.env", "/settings?section=general", "/settings?q=e"}
        lock = take_lock(home, record)
        try:
            write_state(home.gateway_state, state)
            found = dict[str, str]()
            for path in sorted(paths):
                status, page = await one.get(path)
                found |= {path: page} if status == 200 else {}
        finally:
            lock.release()
        leaks = [path for path, page in found.items() if "canary" in page]
        assert leaks == []
        # The pages do show what surrounds the secrets.
        assert "/getMe failed" in found["/settings/channels"]
        assert "/sendMessage failed" in found["/system"]
        assert "10:00:00,000" in found["/logs?log=gateway"]
        assert "notify ${SOME_TOKEN}" in found["/settings/hooks"]
        assert "https://wiki.example/mcp" in found["/settings/mcp"]
        assert "#open,#closed [redacted]" in found["/settings/channels/irc"]
        assert "providers.mine.api_key" in found["/settings?section=providers"]
