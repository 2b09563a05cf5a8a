"""Whether the holder of a lease is alive; dead only if certain."""

import os
import subprocess
import sys

from hermes.kit.ids import is_surely_dead, process_id
from support.cases import cases

_CHILD = "from hermes.kit.ids import process_id\nprint(process_id(), flush=True)\ninput()"


def parts() -> tuple[str, str, str, str]:
    host, place, pid, start = process_id().split("/")
    return host, place, pid, start


def test_this_process_lives() -> None:
    assert parts()[2] == str(os.getpid())
    assert process_id() == process_id()
    assert not is_surely_dead(process_id())


def test_zombie_child_counts_as_dead() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        name = child.stdout.readline().strip()
        assert name != process_id()
        assert not is_surely_dead(name)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_surely_dead(name)
        child.wait()
        assert is_surely_dead(name)


def test_reused_pid_is_another_process() -> None:
    host, place, pid, start = parts()
    assert is_surely_dead(f"{host}/{place}/{pid}/{int(start) + 1}")


def test_process_of_another_boot_is_dead() -> None:
    host, place, pid, start = parts()
    pids = place.partition(".")[2]
    assert is_surely_dead(f"{host}/another-boot.{pids}/{pid}/{start}")


def test_unknown_process_counts_as_alive() -> None:
    host, place, _, start = parts()
    boot = place.partition(".")[0]
    assert not is_surely_dead(f"elsewhere/{place}/4999999/{start}")
    assert not is_surely_dead(f"{host}/{boot}.other-container/4999999/{start}")


@cases("holder", ["", "me", "a/b", "a/b/c/d", "////", f"{parts()[0]}/x/²/1"])
def test_unparsable_holder_counts_as_alive(holder: str) -> None:
    assert not is_surely_dead(holder)
