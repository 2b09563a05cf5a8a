"""What all tests share, and the table in which long proofs are summed up."""

import gc
import signal
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

PROOF = "proof"

# Nothing here may depend on how busy the machine is, or on what a random number is today:
# `house` tries the same examples each time, `quick` fewer, and `soak` looks for new ones.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("house"), max_examples=10)
settings.register_profile("soak", settings.get_profile("house"), derandomize=False)
settings.load_profile("house")


def pytest_configure() -> None:
    """What a shell starts in the background ignores these, and so would all that tests start."""
    for number, handler in (
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """What was collected lives to the end: nobody need look again whether it is garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def prove(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Takes the numbers that a test has found, for the table at the end of `make soak`."""
    return partial(record_property, PROOF)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.config.option.markexpr.startswith("soak"):
        return
    terminalreporter.section("proofs")
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            found = [str(value) for name, value in report.user_properties if name == PROOF]
            name = report.nodeid.rpartition("/")[2]
            terminalreporter.line(f"{outcome} {report.duration:6.0f} s  {name}")
            for numbers in found:
                terminalreporter.line(f"{'':17}{numbers}")
