"""The state file: current, written rarely, and readable whatever it contains."""

import json
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from hermes.app.service.lock import own_record
from hermes.app.service.state_file import StateFile, phase_of, platforms_of
from hermes.app.service.status import Phase, PlatformState, Snapshot, read_state
from hermes.config.home import Home
from hermes.gateway.supervisor import ChannelCondition, ChannelState
from hermes.testing.clock import FakeClock


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


def state_file(home: Home, clock: FakeClock) -> StateFile:
    return StateFile(home, own_record(home, clock.now(), ["hermes"]), clock)


def running(turns: int = 0, **platforms: str) -> Snapshot:
    states = {name: PlatformState(state=state) for name, state in platforms.items()}
    return Snapshot(gateway_state=Phase.RUNNING, active_agents=turns, platforms=states)


def test_file_format(home: Home) -> None:
    clock = FakeClock()
    file = state_file(home, clock)
    file.write(running(2, telegram="connected"))
    written = json.loads(home.gateway_state.read_text())
    assert {**written, "pid": 1, "start_time": 2} == snapshot(
        {
            "pid": 1,
            "kind": "hermes-gateway",
            "argv": ["hermes"],
            "start_time": 2,
            "gateway_state": "running",
            "exit_reason": None,
            "restart_requested": False,
            "active_agents": 2,
            "platforms": {
                "telegram": {
                    "state": "connected",
                    "error_code": None,
                    "error_message": None,
                    "address": None,
                    "updated_at": "2026-01-31T12:00:00Z",
                }
            },
            "served_profiles": [],
            "sandboxes": {},
            "updated_at": "2026-01-31T12:00:00Z",
        }
    )
    assert home.gateway_state.stat().st_mode & 0o777 == 0o600


async def test_platform_state_keeps_the_time_of_change(home: Home) -> None:
    clock = FakeClock()
    file = state_file(home, clock)
    file.write(running(telegram="connected", discord="connected"))
    started = clock.now()
    await clock.advance(60)
    file.write(running(1, telegram="connected", discord="retrying"))
    state = read_state(home.gateway_state)
    assert state is not None
    assert state.platforms["telegram"].updated_at == started
    assert state.platforms["discord"].updated_at == clock.now()


async def test_many_changes_cause_few_writes(home: Home) -> None:
    clock = FakeClock()
    file = state_file(home, clock)
    async with anyio.create_task_group() as group:
        group.start_soon(file.keep)
        for turns in range(100):
            file.put(running(turns))
            await clock.advance(0.05)
        assert file.writes <= 6
        await clock.advance(1)
        assert read_state(home.gateway_state).active_agents == 99
        before = file.writes
        file.put(running(99))
        await clock.advance(10)
        assert file.writes == before
        file.write(running(99))
        assert file.writes == before
        file.write(running(0))
        assert file.writes == before + 1
        group.cancel_scope.cancel()


def test_write_errors_do_not_end_the_gateway(home: Home, caplog) -> None:
    gone = Home(home.root, home.path / "gone")
    file = state_file(gone, FakeClock())
    file.write(running())
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("data", [b"", b"nul", b"[]", b"\xff", b"{}", b'{"kind":"x"}', b'{"a":1}'])
def test_invalid_state_is_ignored(home: Home, data: bytes) -> None:
    home.gateway_state.write_bytes(data)
    assert read_state(home.gateway_state) is None


def test_invalid_fields_are_skipped(home: Home) -> None:
    home.gateway_state.write_text(
        '{"pid": "x", "gateway_state": "levitating", "platforms": 7, "updated_at": "2026-01-31",'
        ' "active_agents": 3, "more": {}}'
    )
    state = read_state(home.gateway_state)
    assert state is not None
    assert (state.pid, state.gateway_state, state.active_agents) == (0, "levitating", 3)
    assert (state.platforms, state.updated_at) == ({}, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(["pid", "kind", "argv", "gateway_state", "platforms", "updated_at"])


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, JSON) | JSON)
def test_reading_never_fails(home: Home, value: object) -> None:
    home.gateway_state.write_text(json.dumps(value))
    state = read_state(home.gateway_state)
    assert state is None or state.gateway_state


def test_channel_conditions_map_to_platform_states() -> None:
    since = FakeClock().now()
    channels = {
        name: ChannelState(condition=condition, since=since, reason=reason)
        for name, condition, reason in [
            ("a", ChannelCondition.LISTENING, ""),
            ("b", ChannelCondition.FAILED, "no route"),
            ("c", ChannelCondition.SILENT, "silence"),
            ("d", ChannelCondition.WAITING, ""),
            ("e", ChannelCondition.CLOSED, ""),
            ("f", ChannelCondition.PAUSED, "Paused."),
            ("g", ChannelCondition.STANDBY, "Process 7 on box receives for this account."),
        ]
    }
    found = platforms_of(channels)
    assert {name: one.state for name, one in found.items()} == {
        "a": "connected", "b": "retrying", "c": "retrying", "d": "connecting", "e": "disconnected",
        "f": "paused", "g": "standby",
    }  # fmt: skip
    assert (found["b"].error_code, found["b"].error_message) == ("failed", "no route")
    assert found["c"].error_code == "deaf"
    assert (found["g"].error_code, found["g"].error_message) == (None, channels["g"].reason)
    assert phase_of(channels) is Phase.DEGRADED
    assert phase_of({"a": channels["a"]}) is Phase.RUNNING
    assert phase_of({name: channels[name] for name in "adfg"}) is Phase.RUNNING
    assert phase_of({"e": channels["e"]}) is Phase.DEGRADED
    assert phase_of({}) is Phase.RUNNING
