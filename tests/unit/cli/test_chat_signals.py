"""Signals stop a turn cleanly; ignored signals stay ignored."""

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
def check_handlers_restored() -> Iterator[None]:
    before = [signal.getsignal(one) for one in WATCHED]
    yield
    assert [signal.getsignal(one) for one in WATCHED] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_ends_and_second_has_default_effect(number: signal.Signals) -> None:
    ended: list[str] = []
    with end_on_signals(lambda: ended.append("yes")) as received:
        assert received.number is None
        signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    assert (ended, received.number) == (["yes"], number)


def test_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with end_on_signals(lambda: pytest.fail("the signal is ignored")) as received:
            signal.raise_signal(signal.SIGHUP)
        assert received.number is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_stops_and_is_recorded() -> None:
    stopped: list[str] = []
    with stop_on_signals(lambda: stopped.append("yes"), b"") as received:
        signal.raise_signal(signal.SIGINT)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert (stopped, received.number) == (["yes"], signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_termination_waits_for_the_work_to_end(number: signal.Signals) -> None:
    done: list[str] = []

    def work() -> None:
        with stop_on_signals(lambda: None, b""):
            signal.raise_signal(number)
            done.append("in order")

    with pytest.raises(Terminated) as caught:
        work()
    assert (done, caught.value.exit_code) == (["in order"], 128 + number)


def test_termination_does_not_wait_forever() -> None:
    def work() -> None:
        with stop_on_signals(lambda: None, b""):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGALRM)
            raise AssertionError("termination did not end the wait")

    with pytest.raises(Terminated) as caught:
        work()
    assert caught.value.exit_code == 143


def test_termination_is_raised_at_the_prompt() -> None:
    with pytest.raises(Terminated) as caught, raise_on_terminate():
        signal.raise_signal(signal.SIGHUP)
    assert caught.value.exit_code == 129
