"""Signals end what is going on, in order; what was ignored stays ignored."""

import signal
from collections.abc import Iterator

import pytest

from hermes.cli.verbs.chat.signals import (
    Terminated,
    end_on_signals,
    raise_on_terminate,
    stop_on_signals,
)

pytestmark = pytest.mark.timeout(method="thread")
"""The usual way to end a test that hangs is a signal, too."""

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    before = [signal.getsignal(one) for one in WATCHED]
    yield
    assert [signal.getsignal(one) for one in WATCHED] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_and_the_second_is_nobodys(number: signal.Signals) -> None:
    ended: list[str] = []
    with end_on_signals(lambda: ended.append("yes")) as heard:
        assert heard.exit_code is None
        signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    assert (ended, heard.exit_code) == (["yes"], 128 + number)


def test_what_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with end_on_signals(lambda: pytest.fail("it was to be ignored")) as heard:
            signal.raise_signal(signal.SIGHUP)
        assert heard.signal is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_at_a_terminal_stops_and_is_remembered() -> None:
    stopped: list[str] = []
    with stop_on_signals(lambda: stopped.append("yes"), b"") as heard:
        signal.raise_signal(signal.SIGINT)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert (stopped, heard.signal) == (["yes"], signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_told_to_end_waits_for_the_end(number: signal.Signals) -> None:
    done: list[str] = []

    def work() -> None:
        with stop_on_signals(lambda: None, b""):
            signal.raise_signal(number)
            done.append("in order")

    with pytest.raises(Terminated) as told:
        work()
    assert (done, told.value.exit_code) == (["in order"], 128 + number)


def test_an_end_that_does_not_come_is_not_waited_for() -> None:
    def work() -> None:
        with stop_on_signals(lambda: None, b""):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGALRM)
            raise AssertionError("it was to leave at once")

    with pytest.raises(Terminated) as told:
        work()
    assert told.value.exit_code == 143


def test_at_the_prompt_it_is_raised() -> None:
    with pytest.raises(Terminated) as told, raise_on_terminate():
        signal.raise_signal(signal.SIGHUP)
    assert told.value.exit_code == 129
