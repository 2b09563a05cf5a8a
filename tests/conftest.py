"""Fixtures and hypothesis profiles for all tests, and the summary table of soak runs."""

import gc
import signal
from collections.abc import Callable
from functools import cache, partial

import pytest
from aiohttp import ThreadedResolver, connector
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

# What collection creates lives until the end; see `pytest_collection_finish`.
gc.disable()

pytest_plugins = ["support.forked_workers", "support.synapse"]

PROOF = "proof"
_GC_THRESHOLD = 10_000
"""Allocations between garbage collections; Python's default slows down every test."""

# Results must not depend on load or random numbers: `house` always tries the same examples,
# `quick` fewer of them, and `soak` looks for new ones.
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


def pytest_configure(config: pytest.Config) -> None:
    _restore_signals()
    # aiodns, which comes with slixmpp, opens an inotify instance per client session; the system
    # allows 128 for all processes of a user.
    connector.DefaultResolver = ThreadedResolver
    if config.getoption("--hypothesis-profile", None) != "soak":
        # Otherwise the examples depend on the constants of all modules that happen to be loaded,
        # and reading those takes seconds.
        providers._get_local_constants = Constants


def _restore_signals() -> None:
    """Restore signals that background jobs of a shell ignore and child processes would inherit."""
    for number, handler in (
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude collected tests from garbage collection, since they live until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    gc.enable()
    # All `conftest.py` files are known now; pytest would look them up at every hook of every test.
    session.gethookproxy = cache(session.gethookproxy)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def prove(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Record numbers that a test measured, for the table at the end of `make soak`."""
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
