"""Logins: links count once and expire, sessions are revoked, attempts are limited."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from hermes.config.loader import with_env_settings
from hermes.config.schema import Config
from hermes.config.sections.general import Dashboard
from hermes.schema.errors import ConfigError
from hermes.testing.clock import FakeClock
from hermes.web.logins import (
    FAILURE_WINDOW,
    LINK_LIFETIME,
    MAX_FAILURES,
    OIDC_LIFETIME,
    SESSION_LIFETIME,
    LoginLimiter,
    Logins,
    Proof,
    is_csrf_token,
)
from hermes.web.passwords import check_password, hash_password
from hermes.web.pending_logins import LIFETIME, MAX_ALL, MAX_PER_ADDRESS, PendingLogins
from hermes.web.settings import read_settings


def test_link_works_once(tmp_path: Path) -> None:
    logins, other = Logins(tmp_path, FakeClock()), Logins(tmp_path, FakeClock())
    token = other.new_link()
    assert logins.use_link(token)
    assert not logins.use_link(token)
    assert not logins.use_link("guess")


def test_link_and_session_expire(tmp_path: Path) -> None:
    clock = FakeClock()
    logins = Logins(tmp_path, clock)
    link, session = logins.new_link(), logins.open_session("browser", "127.0.0.1").token
    clock.step((LINK_LIFETIME + timedelta(seconds=1)).total_seconds())
    assert not logins.use_link(link)
    assert logins.find(session)
    clock.step((SESSION_LIFETIME - timedelta(hours=1)).total_seconds())
    assert logins.find(session, is_use=False)
    clock.step(timedelta(hours=2).total_seconds())
    assert logins.find(session, is_use=False) is None
    session = logins.open_session("browser", "127.0.0.1").token
    clock.step((SESSION_LIFETIME + timedelta(days=1)).total_seconds())
    assert logins.find(session) is None


def test_revoked_session_is_logged_out_and_secrets_are_not_stored(tmp_path: Path) -> None:
    logins = Logins(tmp_path, FakeClock())
    opened = logins.open_session("browser", "127.0.0.1")
    token = opened.token
    login = logins.find(token)
    assert login is not None
    assert is_csrf_token(login, opened.csrf)
    assert not is_csrf_token(login, token)
    assert not is_csrf_token(login, "\udcff")
    file = tmp_path / "logins.json"
    assert token not in file.read_text()
    assert opened.csrf not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert logins.revoke(login.id)
    assert logins.find(token) is None


def test_failed_logins_are_limited_per_address() -> None:
    clock = FakeClock()
    limiter = LoginLimiter(clock)
    for _ in range(MAX_FAILURES):
        assert not limiter.is_blocked("10.0.0.1")
        limiter.count_failure("10.0.0.1")
    assert limiter.is_blocked("10.0.0.1")
    assert not limiter.is_blocked("10.0.0.2")
    clock.skip(FAILURE_WINDOW + 1)
    assert not limiter.is_blocked("10.0.0.1")


def test_password_is_checked_against_its_hash() -> None:
    stored = hash_password("correct horse")
    assert check_password("correct horse", stored)
    assert not check_password("wrong horse", stored)
    for unusable in ("", "plain", "scrypt$1$2$3$x$y", "scrypt$16384$8$1$!$!"):
        assert not check_password("correct horse", unusable)


@pytest.mark.parametrize(
    "settings",
    [
        Dashboard(host="0.0.0.0"),  # noqa: S104 - refused
        Dashboard(host="192.168.1.5"),
        Dashboard(tls_cert="cert.pem"),
        Dashboard(trusted_proxies=("proxy",)),
        Dashboard(public_url="http://example.org"),
        Dashboard(allowed_hosts=("example.org:80",)),
    ],
)
def test_unencrypted_or_wrong_settings_are_refused(settings: Dashboard) -> None:
    with pytest.raises(ConfigError):
        read_settings(Config(dashboard=settings))


def test_other_machines_are_served_behind_a_named_proxy() -> None:
    gateway_settings = Dashboard(
        host="10.0.0.5", trusted_proxies=("10.0.0.9",), public_url="https://a.org"
    )
    settings = read_settings(Config(dashboard=gateway_settings))
    assert settings.is_trusted_proxy("10.0.0.9")
    assert not settings.is_trusted_proxy("10.0.0.8")
    assert settings.allowed_hosts == {"a.org"}


def test_login_by_a_provider_ends_after_its_time(tmp_path: Path) -> None:
    clock = FakeClock()
    logins = Logins(tmp_path, clock)
    by_link = logins.open_session("browser", "127.0.0.1").token
    by_provider = logins.open_session("browser", "127.0.0.1", Proof("oidc", "me")).token
    clock.step(OIDC_LIFETIME.total_seconds() / 2)
    assert logins.find(by_provider)
    clock.step(OIDC_LIFETIME.total_seconds() / 2 + 1)
    assert logins.find(by_provider) is None
    assert logins.find(by_link)
    assert len(logins.sessions()) == 1


def test_begun_login_counts_once_soon_and_is_not_pushed_out_by_others(tmp_path: Path) -> None:
    clock = FakeClock()
    begun = PendingLogins(tmp_path, "oidc", clock)
    mine = begun.add("10.0.0.1", "mine")
    theirs = [begun.add("10.0.0.2", "theirs") for _ in range(MAX_PER_ADDRESS + 1)]
    assert begun.take(theirs[0]) is None
    assert begun.take(theirs[-1]) == "theirs"
    assert begun.take(mine) == "mine"
    assert begun.take(mine) is None
    late = begun.add("10.0.0.1", "late")
    clock.step(LIFETIME.total_seconds())
    assert begun.take(late) is None


def test_number_of_begun_logins_is_limited(tmp_path: Path) -> None:
    clock = FakeClock()
    begun = PendingLogins(tmp_path, "oidc", clock)
    first, second = begun.add("10.0.0.1", "first"), begun.add("10.0.0.1", "second")
    stored = tmp_path / "pending-oidc.json"
    entries = msgspec.json.decode(stored.read_bytes(), type=list[dict[str, str]])
    more = [entries[1] | {"digest": str(number)} for number in range(MAX_ALL - 2)]
    stored.write_bytes(msgspec.json.encode([*entries, *more]))
    last = begun.add("10.0.0.2", "last")
    assert begun.take(first) is None
    assert begun.take(second) == "second"
    assert begun.take(last) == "last"


def test_begun_login_is_finished_by_another_process_and_its_token_is_not_stored(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    one, other = (PendingLogins(tmp_path, "passkey", clock) for _ in range(2))
    token = one.add("10.0.0.1", "value")
    stored = tmp_path / "pending-passkey.json"
    assert token not in stored.read_text()
    assert stored.stat().st_mode & 0o077 == 0
    assert PendingLogins(tmp_path, "oidc", clock).take(token) is None
    assert other.take(token) == "value"
    assert one.take(token) is None


@pytest.mark.parametrize("content", [b"[{]", b'[{"digest": "\xff"}]'])
def test_damaged_file_of_begun_logins_is_replaced(tmp_path: Path, content: bytes) -> None:
    begun = PendingLogins(tmp_path, "oidc", FakeClock())
    (tmp_path / "pending-oidc.json").write_bytes(content)
    assert begun.take(begun.add("10.0.0.1", "value")) == "value"


@pytest.mark.parametrize("content", [b"{]", b'{"links": [{"digest": "\xff"}]}'])
def test_damaged_file_of_logins_is_repaired_by_a_new_link(tmp_path: Path, content: bytes) -> None:
    logins = Logins(tmp_path, FakeClock())
    logins.new_link()
    next(tmp_path.glob("*.json")).write_bytes(content)
    assert logins.use_link(logins.new_link())


def test_variables_fill_in_settings_missing_from_the_file() -> None:
    env = {
        "HERMES_DASHBOARD_OIDC_ISSUER": "https://id.example",
        "HERMES_DASHBOARD_OIDC_CLIENT_ID": "variable",
    }
    settings = {"dashboard": {"oauth": {"self_hosted": {"client_id": "file"}}}}
    merged = msgspec.convert(with_env_settings(settings, env), Config)
    oidc = merged.dashboard.oauth.self_hosted
    assert (oidc.issuer, oidc.client_id) == ("https://id.example", "file")
    assert settings == {"dashboard": {"oauth": {"self_hosted": {"client_id": "file"}}}}
