"""The bus between processes follows the contract, and its wake-ups reach the other processes."""

from pathlib import Path

import anyio
import pytest

from hermes.bus.local import LocalBus
from hermes.ports.bus import Bus
from hermes.testing.contracts.bus import BusContract


class TestLocalBus(BusContract):
    @pytest.fixture
    def bus(self, tmp_path: Path) -> Bus:
        return LocalBus(tmp_path / "hermes.db")


async def test_wake_up_reaches_another_process(tmp_path: Path) -> None:
    """A home may reach the store through a link, however long its path is."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    (folder / "hermes.db").touch()
    (tmp_path / "link.db").symlink_to(folder / "hermes.db")
    one, other = LocalBus(folder / "hermes.db"), LocalBus(tmp_path / "link.db")
    with anyio.fail_after(5), other.listen("inbox") as wakeups, other.listen("stops") as stops:
        one.wake("inbox", "agent:main")
        await wakeups.wait()
        assert list(wakeups.take()) == ["agent:main"]
        assert not stops.take()


async def test_busy_process_gets_every_key_later(tmp_path: Path) -> None:
    one, other = LocalBus(tmp_path / "hermes.db"), LocalBus(tmp_path / "hermes.db")
    keys = {str(number) for number in range(2_000)}
    with anyio.fail_after(20), other.listen("inbox") as wakeups:
        for key in keys:
            one.wake("inbox", key)
        got = set[str]()
        while got != keys:
            await wakeups.wait()
            got |= set(wakeups.take())


async def test_socket_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    one, other = LocalBus(tmp_path / "hermes.db"), LocalBus(tmp_path / "hermes.db")
    folder = tmp_path / "hermes.db-wakeups"
    with other.listen("inbox"):
        (left,) = folder.iterdir()
        # As a killed process leaves it: the file without a socket behind it.
        left.rename(folder / "wake_killed")
    one.wake("inbox")
    assert not list(folder.iterdir())


async def test_socket_name_is_not_used_again(tmp_path: Path) -> None:
    """A sender that failed may remove the file of the closed socket at any time later."""
    bus, folder = LocalBus(tmp_path / "hermes.db"), tmp_path / "hermes.db-wakeups"
    names = set[str]()
    for _ in range(2):
        with bus.listen("inbox"):
            names |= {path.name for path in folder.iterdir()}
    assert len(names) == 2


async def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "hermes.db-wakeups"
    folder.mkdir()
    (folder / "note").touch()
    LocalBus(tmp_path / "hermes.db").wake("inbox")
    assert [path.name for path in folder.iterdir()] == ["note"]


async def test_wake_up_for_this_process_does_not_reach_others(tmp_path: Path) -> None:
    one, other = LocalBus(tmp_path / "hermes.db"), LocalBus(tmp_path / "hermes.db")
    with anyio.fail_after(5), one.listen("t") as here, other.listen("t") as there:
        one.wake_here("t", "here")
        await here.wait()
        # Datagrams arrive in order.
        one.wake("t", "everywhere")
        await there.wait()
        assert list(there.take()) == ["everywhere"]


async def test_process_without_a_socket_misses_wake_ups(tmp_path: Path) -> None:
    (tmp_path / "hermes.db-wakeups").touch()
    bus = LocalBus(tmp_path / "hermes.db")
    with bus.listen("t"):
        assert bus.misses_wakeups
