"""The OAuth device flow against a local server, and concurrent renewals."""

import base64
import gc
import hashlib
import io
import warnings
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import structs

from emulators.fake_provider.anthropic import AnthropicDialect
from emulators.fake_provider.server import serve_provider
from hermes.app.models import ModelSelector
from hermes.cli.context import CliContext
from hermes.cli.verbs.auth import run as run_auth
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.clock import SystemClock
from hermes.kit.http_server import shut_down_server
from hermes.models.auth_file import OAUTH, AuthFile, Credential
from hermes.models.key_pool import KeyPool, stored_secrets
from hermes.models.oauth import OAuthClient
from hermes.models.settings import CustomProvider, DeviceLogin, ModelSettings
from hermes.schema.errors import Unauthorized, Unreachable
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.model import read_stream
from hermes.testing.fake_openai import Script
from support.cli_process import TEST_TIMEOUT, CliResult, HermesCli, fake_model_process


class LoginServer:
    """A login server that answers polls with `answers`, then with tokens."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.forms: list[dict[str, str]] = []
        self.renewals = 0
        self.lifetime = 600.0
        self.challenge = ""
        self.url = ""
        self.held: Callable[[], bool] = lambda: False

    @property
    def login(self) -> DeviceLogin:
        return DeviceLogin(
            device_url=f"{self.url}/device",
            token_url=f"{self.url}/token",
            client_id="hermes",
            scope="infer",
            pkce=True,
        )

    async def device(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        self.challenge = str(form["code_challenge"])
        shown = {"device_code": "dev", "user_code": "ABCD-EFGH", "interval": 2, "expires_in": 60}
        return web.json_response(shown | {"verification_uri": "https://portal.example/go"})

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        if form["grant_type"] == "refresh_token":
            await anyio.sleep(0.01)
            # The client waits half a minute at most.
            with anyio.move_on_after(20):
                while self.held():
                    await SystemClock().sleep(0.02)
            if form["refresh_token"] != f"r{self.renewals}":
                return web.json_response({"error": "invalid_grant"}, status=400)
            self.renewals += 1
            return web.json_response(self._tokens())
        if self.answers:
            return web.json_response({"error": self.answers.pop(0)}, status=400)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == self.challenge
        return web.json_response(self._tokens())

    def _tokens(self) -> dict[str, object]:
        n = self.renewals
        return {"access_token": f"a{n}", "refresh_token": f"r{n}", "expires_in": self.lifetime}


@asynccontextmanager
async def login_server(*answers: str) -> AsyncIterator[LoginServer]:
    one = LoginServer(*answers)
    app = web.Application()
    app.add_routes([web.post("/device", one.device), web.post("/token", one.token)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        one.url = "http://{}:{}".format(*runner.addresses[0][:2])
        yield one
    finally:
        await shut_down_server(runner)


@pytest.fixture
def file(tmp_path: Path) -> AuthFile:
    return AuthFile(tmp_path / "auth.json")


async def test_login_stores_a_credential(file: AuthFile):
    clock = FakeClock(auto=True)
    broker = OAuthClient(file, clock)
    async with login_server("authorization_pending", "slow_down") as one:
        login = await broker.begin(one.login)
        assert login.user_code == "ABCD-EFGH"
        made = await broker.save("nous", await broker.wait_for_approval(one.login, login))
    assert clock.slept == [2, 2, 7]
    (kept,) = file.credentials("nous")
    assert kept == made
    assert (kept.auth_type, kept.access_token, kept.refresh_token) == (OAUTH, "a0", "r0")
    assert kept.expires == clock.now().timestamp() + 600


@pytest.mark.parametrize("error", ["access_denied", "expired_token"])
async def test_declined_login_is_reported(file: AuthFile, error: str):
    broker = OAuthClient(file, FakeClock(auto=True))
    async with login_server(error) as one:
        with pytest.raises(Unauthorized, match=error):
            await broker.wait_for_approval(one.login, await broker.begin(one.login))
    assert not file.path.exists()


async def test_unanswered_login_times_out(file: AuthFile):
    broker = OAuthClient(file, FakeClock(auto=True))
    async with login_server(*["authorization_pending"] * 99) as one:
        with pytest.raises(Unauthorized, match="in time"):
            await broker.wait_for_approval(one.login, await broker.begin(one.login))
        assert len(one.forms) <= 30


async def test_unreachable_login_server_is_reported(file: AuthFile):
    login = DeviceLogin(
        device_url="http://127.0.0.1:9/d", token_url="http://127.0.0.1:9/t", client_id="c"
    )
    with pytest.raises(Unreachable):
        await OAuthClient(file, FakeClock()).begin(login)


def expiring(file: AuthFile, clock: FakeClock) -> Credential:
    soon = Credential(
        auth_type=OAUTH,
        access_token="old",
        refresh_token="r0",
        expires_at=clock.now().timestamp() + 30,
    )
    return file.add("nous", soon, clock.now())


async def test_concurrent_renewals_happen_once(file: AuthFile):
    clock = FakeClock(auto=True)
    old = expiring(file, clock)
    fresh: list[str] = []
    async with login_server() as one, anyio.create_task_group() as group:
        login = one.login
        # The clock runs ahead while those that wait for the lock sleep.
        one.lifetime = 1_000_000.0

        async def renew() -> None:
            client = OAuthClient(AuthFile(file.path), clock, timeout=one.lifetime)
            found = await client.renewed_if_expiring("nous", old, login)
            fresh.append(found.access_token)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as many:
                for _ in range(6):
                    many.start_soon(renew)
        group.cancel_scope.cancel()
    assert fresh == ["a1"] * 6
    assert one.renewals == 1
    assert [found.access_token for found in file.credentials("nous")] == ["a1"]


def holders(path: Path) -> set[str]:
    """Return the processes that have a file open."""
    found: set[str] = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == path:
                found.add(link.parts[2])
        except OSError:
            continue
    return found


async def test_two_processes_renew_once(tmp_path: Path):
    """The server does not respond before both processes want to renew."""
    now = SystemClock().now()
    with fake_model_process(tmp_path / "mock", Script()) as model:
        hermes = HermesCli(tmp_path, model.url)
        hermes.home.mkdir()
        for name in ("OPENAI_API_KEY", "HERMES_INFERENCE_PROVIDER", "HERMES_INFERENCE_MODEL"):
            del hermes.env[name]
        soon = Credential(
            auth_type=OAUTH,
            access_token="old",
            refresh_token="r0",
            expires_at=now.timestamp() + 30,
        )
        file = AuthFile(hermes.home / "auth.json")
        file.add("nous", soon, now)
        async with login_server() as one:
            login = one.login
            hermes.configure(
                "model:\n  provider: nous\n  default: mock\n"
                "providers:\n  nous:\n"
                f"    base_url: {model.url}\n    oauth:\n"
                f"      device_url: {login.device_url}\n      token_url: {login.token_url}\n"
                "      client_id: hermes\n"
            )
            lock = hermes.home / "auth-renewal.lock"
            one.held = lambda: len(holders(lock)) < 2
            ran: list[CliResult] = []

            async def ask() -> None:
                ran.append(await run_sync(hermes, "-z", "hello"))

            with anyio.fail_after(TEST_TIMEOUT * 2):
                async with anyio.create_task_group() as both:
                    both.start_soon(ask)
                    both.start_soon(ask)
        assert [done.code for done in ran] == [0, 0], ran
        assert len(model.requests()) == 2
    assert [form["grant_type"] for form in one.forms] == ["refresh_token"]
    assert [kept.access_token for kept in file.credentials("nous")] == ["a1"]


async def test_refused_renewal_has_a_hint(file: AuthFile):
    clock = FakeClock(auto=True)
    old = structs.replace(expiring(file, clock), refresh_token="wrong")
    file.update("nous", old.id, clock.now(), refresh_token="wrong")
    async with login_server() as one:
        with pytest.raises(Unauthorized, match="invalid_grant") as caught:
            await OAuthClient(file, clock).renewed_if_expiring("nous", old, one.login)
    assert "hermes auth add nous --oauth" in caught.value.hint
    assert file.credentials("nous")[0].access_token == "old"


async def test_pool_renews_and_knows_the_next_expiry(file: AuthFile):
    clock = FakeClock()
    expiring(file, clock)
    async with login_server() as one:
        pool = KeyPool(AuthFile(file.path), clock)
        settings = await pool.with_renewed_keys(ModelSettings(logins={"nous": one.login}))
    assert settings.pools == {"nous": ("a1",)}
    assert clock.now().timestamp() < pool.renew_at
    await clock.advance(541)
    assert clock.now().timestamp() >= pool.renew_at


def settings_for(one: LoginServer, url: str) -> ModelSettings:
    custom = CustomProvider(name="nous", base_url=url, model="m", api_mode="anthropic_messages")
    return ModelSettings(provider="nous", custom_providers=(custom,), logins={"nous": one.login})


def selector_for(path: Path, settings: ModelSettings, clock: FakeClock) -> ModelSelector:
    return ModelSelector(Home(path, path), Env({}), settings, FileBlobs(path / "blobs"), clock)


async def test_model_is_called_with_a_renewed_token(tmp_path: Path, file: AuthFile):
    clock = FakeClock()
    expiring(file, clock)
    async with login_server() as one, serve_provider(AnthropicDialect()) as server:
        selector = selector_for(tmp_path, settings_for(one, server.url), clock)
        first = await selector.find()
        await read_stream(first)
        assert await selector.find() is first
        await clock.advance(595)
        second = await selector.find()
        await read_stream(second)
        await read_stream(first)
        await selector.aclose()
    assert [sent.headers["x-api-key"] for sent in server.requests] == ["a1", "a2", "a1"]


async def test_login_by_command(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    out, err = io.StringIO(), io.StringIO()
    async with login_server("authorization_pending") as one:
        login = one.login
        (home / "config.yaml").write_text(
            "providers:\n  nous:\n    oauth:\n"
            f"      device_url: {login.device_url}\n      token_url: {login.token_url}\n"
            "      client_id: hermes\n      pkce: true\n"
        )
        env = Env({"HERMES_HOME": str(home), "HOME": str(tmp_path)})
        context = CliContext(env, None, (io.StringIO(), out, err))
        args = Namespace(action="add", provider="nous", key=None, label="me", oauth=True)
        with anyio.fail_after(60):
            code = await run_sync(run_auth, args, context, FakeClock(auto=True))
    assert (code, out.getvalue()) == (0, "Logged in to nous as me\n")
    assert err.getvalue() == "Open https://portal.example/go\nand enter the code ABCD-EFGH\n"
    assert AuthFile(home / "auth.json").credentials("nous")[0].access_token == "a0"


async def test_failed_renewal_does_not_block_other_providers(file: AuthFile):
    clock = FakeClock()
    expiring(file, clock)
    gone = DeviceLogin(
        device_url="http://127.0.0.1:9/d", token_url="http://127.0.0.1:9/t", client_id="c"
    )
    pool = KeyPool(AuthFile(file.path), clock)
    settings = await pool.with_renewed_keys(ModelSettings(logins={"nous": gone}))
    assert settings.pools == {"nous": ("old",)}
    assert clock.now().timestamp() < pool.renew_at
    await clock.advance(61)
    assert clock.now().timestamp() >= pool.renew_at


async def test_running_turn_keeps_the_model_with_its_old_token(tmp_path: Path, file: AuthFile):
    """Each renewal, or failed renewal, creates a new model for later turns."""
    clock = FakeClock()
    expiring(file, clock)
    async with login_server() as one, serve_provider(AnthropicDialect()) as server:
        selector = selector_for(tmp_path, settings_for(one, server.url), clock)
        old = await selector.find()
        await read_stream(old)
        await clock.advance(2 * 3600)
        assert await selector.find() is not old
        # Leftover tasks of other tests do not count.
        gc.collect()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always", ResourceWarning)
            assert (await read_stream(old)).answer.text
            del old
            gc.collect()
        assert [one for one in shown if "nclosed c" in str(one.message)] == []
        await selector.aclose()


def test_all_secrets_are_listed(file: AuthFile):
    assert stored_secrets(file.path) == []
    expiring(file, FakeClock())
    assert stored_secrets(file.path) == ["old", "r0"]


async def test_token_refused_early_is_renewed(tmp_path: Path, file: AuthFile):
    clock = FakeClock(auto=True)
    later = clock.now().timestamp() + 5000
    file.update("nous", expiring(file, clock).id, clock.now(), expires_at=later)
    async with (
        login_server() as one,
        serve_provider(AnthropicDialect(), Script(api_key="a1")) as server,
    ):
        selector = selector_for(tmp_path, settings_for(one, server.url), clock)
        with pytest.raises(Unauthorized):
            await read_stream(await selector.find())
        assert (await read_stream(await selector.find())).answer.text
        await selector.aclose()
    assert [sent.headers["x-api-key"] for sent in server.requests] == ["old", "a1"]
