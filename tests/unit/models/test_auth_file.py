import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes.models.auth_file import AuthFile, Cooldown, Credential, fingerprint, parse_timestamp
from hermes.models.key_pool import AuthFileCooldowns, KeyPool, KeyRing, key_statuses, next_key
from hermes.models.settings import KeyStrategy, ModelSettings
from hermes.schema.errors import ConfigError, UsageError
from hermes.testing.clock import FakeClock
from support.cases import cases

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> AuthFile:
    return AuthFile(tmp_path / "home" / "auth.json")


def key(token: str, label: str = "") -> Credential:
    return Credential(access_token=token, label=label)


def test_keys_are_added_and_removed(file: AuthFile):
    first = file.add("openai", key("sk-1"), NOW)
    second = file.add("openai", key("sk-2", "spare"), NOW)
    assert [one.access_token for one in file.credentials("openai")] == ["sk-1", "sk-2"]
    assert (first.label, second.label, second.priority) == ("key-1", "spare", 1)
    assert file.remove("openai", "spare", NOW).access_token == "sk-2"
    assert file.remove("openai", "1", NOW).id == first.id
    assert file.providers() == []


def test_file_is_private(file: AuthFile):
    file.add("openai", key("sk-1"), NOW)
    for path in (file.path, file.path.with_name("auth.lock")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_duplicate_key_is_stored_once(file: AuthFile):
    made = file.add("openai", key("sk-1"), NOW)
    again = file.add("openai", key("sk-1", "mine"), NOW)
    assert (again.id, again.label) == (made.id, "mine")
    assert len(file.credentials("openai")) == 1


@pytest.mark.parametrize("which", ["3", "0", "nobody", ""])
def test_removing_an_unknown_key_fails(file: AuthFile, which: str):
    file.add("openai", key("sk-1", "a"), NOW)
    before = file.path.read_bytes()
    with pytest.raises(UsageError, match="has no key"):
        file.remove("openai", which, NOW)
    assert file.path.read_bytes() == before


def test_unknown_fields_are_preserved(file: AuthFile):
    file.path.parent.mkdir()
    strange = {
        "version": 1,
        "providers": {"nous": {"tokens": {"a": 1}}},
        "credential_pool": {
            "openai": [{"id": "x", "access_token": "sk-1", "agent_key": "z", "priority": 0}],
            "odd": "not a list",
        },
    }
    file.path.write_text(json.dumps(strange))
    file.add("openai", key("sk-2"), NOW)
    file.add_cooldown("openai", "sk-1", Cooldown(5.0, "auth"), NOW)
    now = json.loads(file.path.read_text())
    assert now["providers"] == strange["providers"]
    assert now["credential_pool"]["odd"] == "not a list"
    assert now["credential_pool"]["openai"][0]["agent_key"] == "z"
    assert file.credentials("odd") == []


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "\xff"])
def test_damaged_file_is_not_overwritten(file: AuthFile, text: str):
    file.path.parent.mkdir()
    file.path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match="damaged"):
        file.add("openai", key("sk-1"), NOW)
    assert file.path.read_bytes() == text.encode("latin-1")


def test_concurrent_writes_lose_nothing(file: AuthFile):
    def add(number: int) -> None:
        AuthFile(file.path).add("openai", key(f"sk-{number}"), NOW)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    known = file.credentials("openai")
    assert {one.access_token for one in known} == {f"sk-{number}" for number in range(24)}
    assert len({one.priority for one in known}) == 24


def test_cooldowns_of_stored_and_other_keys(file: AuthFile):
    file.add("openai", key("sk-1"), NOW)
    until = NOW.timestamp() + 60
    file.add_cooldown("openai", "sk-1", Cooldown(until, "rate_limit"), NOW)
    file.add_cooldown("openai", "sk-env", Cooldown(until, "auth"), NOW)
    assert file.cooldowns("openai") == {
        fingerprint("sk-1"): Cooldown(until, "rate_limit"),
        fingerprint("sk-env"): Cooldown(until, "auth"),
    }
    assert "sk-env" not in file.path.read_text()
    later = NOW + timedelta(hours=1)
    file.add_cooldown("openai", "sk-other", Cooldown(later.timestamp() + 9, "auth"), later)
    assert fingerprint("sk-env") not in file.cooldowns("openai")
    assert file.clear_cooldowns("openai", NOW) == 2
    assert file.cooldowns("openai") == {}


def test_cooldown_without_a_reset_time_ends(file: AuthFile):
    value = {"access_token": "k", "last_status": "exhausted", "last_status_at": NOW.isoformat()}
    file.path.parent.mkdir()
    file.path.write_text(json.dumps({"credential_pool": {"openai": [value]}}))
    assert file.cooldowns("openai")[fingerprint("k")].until == NOW.timestamp() + 3600


@cases(
    ("value", "wanted"),
    [(None, None), (5, 5.0), ("7.5", 7.5), (NOW.isoformat(), NOW.timestamp()), ("soon", None)],
)
def test_timestamps_are_parsed(value: float | str | None, wanted: float | None):
    assert parse_timestamp(value) == wanted


async def test_cooldowns_outlive_the_process(file: AuthFile):
    clock = FakeClock()
    memory = AuthFileCooldowns(file, "openai", clock)
    ring = KeyRing(("a", "b"), cooldowns=memory, now=clock.monotonic())
    assert ring.next_key(clock.monotonic()) == "a"
    ring.start_cooldown("a", clock.monotonic(), 60.0, "rate_limit")
    await ring.save_cooldowns()
    other = KeyRing(
        ("a", "b"), cooldowns=AuthFileCooldowns(file, "openai", clock), now=clock.monotonic()
    )
    assert other.next_key(clock.monotonic()) == "b"
    assert other.next_key(clock.monotonic() + 61) == "a"
    await clock.advance(61)
    assert AuthFileCooldowns(file, "openai", clock).remaining(("a", "b")) == {}


async def test_cooldown_of_a_single_key_is_not_stored(file: AuthFile):
    ring = KeyRing(("a",), cooldowns=AuthFileCooldowns(file, "openai", FakeClock()))
    ring.start_cooldown("a", 0.0, 60.0, "auth")
    await ring.save_cooldowns()
    assert not file.path.exists()


async def test_unwritable_file_is_only_logged(tmp_path: Path):
    (tmp_path / "auth.json").write_text("{")
    memory = AuthFileCooldowns(AuthFile(tmp_path / "auth.json"), "openai", FakeClock())
    ring = KeyRing(("a", "b"), cooldowns=memory)
    ring.start_cooldown("a", 0.0, 60.0, "auth")
    await ring.save_cooldowns()
    assert ring.next_key(0.0) == "b"


def test_pool_is_added_to_the_settings(file: AuthFile):
    pool = KeyPool(AuthFile(file.path), FakeClock())
    assert pool.with_keys(ModelSettings()) == ModelSettings()
    file.add("openai", key("sk-1"), NOW)
    assert pool.with_keys(ModelSettings()).pools == {"openai": ("sk-1",)}


@cases(
    ("rests", "strategy", "index", "why"),
    [
        ((0, 0), KeyStrategy.FILL_FIRST, 0, "first key that is ready"),
        ((9, 0), KeyStrategy.FILL_FIRST, 1, "all other keys are on cooldown"),
        ((9, 5), KeyStrategy.FILL_FIRST, 1, "ready soonest"),
        ((0,), KeyStrategy.FILL_FIRST, 0, "only key"),
        ((0, 0), KeyStrategy.ROUND_ROBIN, 0, "round_robin"),
    ],
)
def test_next_key(rests: tuple[float, ...], strategy: KeyStrategy, index: int, why: str):
    value = [(f"k{number}", "VAR") for number in range(len(rests))]
    resting = {fingerprint(f"k{n}"): Cooldown(100.0 + left, "auth") for n, left in enumerate(rests)}
    verdict = next_key(key_statuses(value, [], resting, 100.0), strategy)
    assert verdict is not None
    assert verdict.index == index
    assert why in verdict.reason


def test_duplicate_key_keeps_its_first_source():
    held = key_statuses([("k", "VAR")], [key("k"), key("l")], {}, 0.0)
    assert [(one.key, one.source) for one in held] == [("k", "VAR"), ("l", "auth.json")]


def test_no_next_key_without_keys():
    assert next_key([], KeyStrategy.RANDOM) is None
    chance: Callable[[], float] = lambda: 0.0  # noqa: E731
    assert KeyRing((), chance=chance).next_key(0.0) == ""
