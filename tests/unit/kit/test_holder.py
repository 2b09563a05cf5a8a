"""Whether whoever holds something is still alive: sure only when it is certain."""

import os
import subprocess
import sys

import pytest

from hermes.kit.process_identity import is_surely_dead, process_id

_CHILD = (
    "from hermes.kit.process_identity import process_id\nprint(process_id(), flush=True)\ninput()"
)


def parts() -> tuple[str, str, str, str]:
    host, place, pid, start = process_id().split("/")
    return host, place, pid, start


def test_this_process_lives() -> None:
    assert parts()[2] == str(os.getpid())
    assert process_id() == process_id()
    assert not is_surely_dead(process_id())


def test_a_child_is_alive_then_dead_also_before_anybody_has_waited_for_it() -> None:
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


def test_a_pid_that_was_given_again_is_another_process() -> None:
    host, place, pid, start = parts()
    assert is_surely_dead(f"{host}/{place}/{pid}/{int(start) + 1}")


def test_nobody_outlives_a_reboot() -> None:
    host, place, pid, start = parts()
    pids = place.partition(".")[2]
    assert is_surely_dead(f"{host}/another-boot.{pids}/{pid}/{start}")


def test_in_doubt_it_lives() -> None:
    host, place, _, start = parts()
    boot = place.partition(".")[0]
    assert not is_surely_dead(f"elsewhere/{place}/4999999/{start}")
    assert not is_surely_dead(f"{host}/{boot}.other-container/4999999/{start}")


@pytest.mark.parametrize("holder", ["", "me", "a/b", "a/b/c/d", "////", f"{parts()[0]}/x/²/1"])
def test_a_name_that_is_no_process_lives(holder: str) -> None:
    assert not is_surely_dead(holder)
