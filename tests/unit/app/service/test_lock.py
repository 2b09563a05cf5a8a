"""One gateway per home, whether its record is alive, dead, remote or unreadable."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from hermes.app.service.lock import (
    AlreadyRunning,
    ProcessRecord,
    own_record,
    read_record,
    running_gateway,
    take_lock,
    take_locks,
)
from hermes.config.home import Home
from hermes.kit.errors import ConfigError

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


def on_another_machine(record: ProcessRecord) -> ProcessRecord:
    """The same pid on another machine, where it cannot be checked."""
    return structs.replace(record, holder="other-host/" + record.holder.partition("/")[2])


def test_lock_names_its_holder_and_excludes_others(home: Home) -> None:
    mine = own_record(home, NOW, ["hermes", "gateway", "run"])
    assert running_gateway(home) is None
    lock = take_lock(home, mine)
    assert read_record(home.gateway_lock) == mine
    assert (mine.pid, mine.kind, mine.argv) == (
        os.getpid(), "hermes-gateway", ("hermes", "gateway", "run"),
    )  # fmt: skip
    assert home.gateway_lock.stat().st_mode & 0o777 == 0o600
    with pytest.raises(AlreadyRunning) as refused:
        take_lock(home, mine)
    assert refused.value.record == mine
    assert refused.value.exit_code == 1
    assert running_gateway(home) == mine
    lock.release()
    assert running_gateway(home) is None
    assert home.gateway_lock.read_bytes() == b""
    take_lock(home, mine).release()


def test_record_of_a_dead_process_is_not_a_lock(home: Home) -> None:
    mine = own_record(home, NOW)
    other_start = structs.replace(mine, holder=mine.holder + "0")
    home.gateway_lock.write_bytes(b"")
    lock = take_lock(home, other_start)
    assert running_gateway(home) is None
    lock.release()


def test_remote_process_is_known_by_its_lock(home: Home) -> None:
    record = on_another_machine(own_record(home, NOW))
    lock = take_lock(home, record)
    assert running_gateway(home) == record
    data = home.gateway_lock.read_bytes()
    lock.release()
    home.gateway_lock.write_bytes(data)
    assert running_gateway(home) is None


@pytest.mark.slow
def test_lock_held_by_a_child_of_a_dead_process_is_reported(home: Home) -> None:
    dead = structs.replace(own_record(home, NOW), holder=own_record(home, NOW).holder + "0")
    lock = take_lock(home, dead)
    with pytest.raises(AlreadyRunning, match="a child process still holds its lock"):
        take_lock(home, own_record(home, NOW))
    lock.release()


def test_removed_lock_file_does_not_admit_a_second_holder(home: Home) -> None:
    mine = own_record(home, NOW)
    first = take_lock(home, mine)
    home.gateway_lock.unlink()
    second = take_lock(home, mine)
    with pytest.raises(AlreadyRunning):
        take_lock(home, mine)
    second.release()
    first.release()


HOLDER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from hermes.config.home import Home
from hermes.app.service.lock import take_lock
from hermes.app.service.lock import own_record

home = Home(Path(sys.argv[1]), Path(sys.argv[1]))
lock = take_lock(home, own_record(home, datetime(2026, 1, 31, tzinfo=UTC)))
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_of_a_killed_process_is_released(home: Home) -> None:
    command = [sys.executable, "-c", HOLDER, str(home.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert running_gateway(home).pid == holder.pid
        with pytest.raises(AlreadyRunning, match=f"pid {holder.pid}, since 2026-01-3"):
            take_lock(home, own_record(home, NOW))
        holder.kill()
        holder.wait()
        assert running_gateway(home) is None
        take_lock(home, own_record(home, NOW)).release()


def test_locks_are_taken_for_all_profiles_or_none(tmp_path: Path) -> None:
    homes = [Home(tmp_path, tmp_path / name, name) for name in ("a", "b", "c")]
    for one in homes:
        one.path.mkdir()
    alone = take_lock(homes[1], own_record(homes[1], NOW))
    with pytest.raises(AlreadyRunning, match="profile b is already running"):
        take_locks(homes, own_record(homes[0], NOW))
    assert running_gateway(homes[0]) is None
    alone.release()
    locks = take_locks(homes, own_record(homes[0], NOW))
    with pytest.raises(AlreadyRunning, match="c is already served by the gateway of profile a"):
        take_lock(homes[2], own_record(homes[2], NOW))
    locks.release()
    assert [running_gateway(one) for one in homes] == [None] * 3


def test_unusable_lock_file_is_reported(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    home.gateway_lock.symlink_to(tmp_path / "on_another_machine")
    with pytest.raises(ConfigError, match=r"gateway\.lock cannot be used"):
        take_lock(home, own_record(home, NOW))
    assert running_gateway(home) is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff", b'{"pid": 0}', b'{"pid":1,"kind":"x"}']
)
def test_invalid_record_is_ignored(home: Home, data: bytes) -> None:
    home.gateway_lock.write_bytes(data)
    assert read_record(home.gateway_lock) is None
    assert running_gateway(home) is None
    take_lock(home, own_record(home, NOW)).release()
