"""A pytest plugin that runs tests in several processes: `pytest --jobs 2`.

The tests are collected once; the workers are forks of the process that collected them. A worker
takes one test file at a time, so that the fixtures of a module are built once.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureManager
from _pytest.runner import runtestprotocol

Files = Sequence[Sequence[pytest.Item]]

_NUMBER_SIZE = 2
"""Bytes of a file's number. A pipe holds the numbers of all files and returns each of them once."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--jobs", type=int, default=1, help="number of processes that run tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    jobs: int = session.config.getoption("jobs")
    if jobs == 1 or session.testsfailed or session.config.getoption("collectonly"):
        return None
    _run_in_workers(session, jobs)
    return True


def _run_in_workers(session: pytest.Session, jobs: int) -> None:
    files = _by_file(session.items)
    queue = _queue_of_numbers(len(files))
    base: Path = session.config._tmp_path_factory.getbasetemp()
    fork = get_context("fork")
    workers: dict[Connection, ForkProcess] = {}
    for number in range(jobs):
        results, sender = fork.Pipe(duplex=False)
        args = (session.config, files, queue, sender, base / f"worker-{number}")
        workers[results] = fork.Process(target=_work, args=args)
        workers[results].start()
        sender.close()
    os.close(queue)
    try:
        _report_results(session, workers)
    finally:
        for worker in workers.values():
            worker.terminate()
            worker.join()


def _by_file(items: Sequence[pytest.Item]) -> Files:
    """Return the tests of each file: first those with processes, then the files with many tests.

    The short ones at the end let all workers finish at about the same time.
    """
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    return sorted(files, key=lambda tests: ("integration" not in tests[0].path.parts, -len(tests)))


def _queue_of_numbers(count: int) -> int:
    """Return the end of a pipe from which the workers read the numbers of their files."""
    numbers, writer = os.pipe()
    for number in range(count):
        os.write(writer, number.to_bytes(_NUMBER_SIZE, "big"))
    os.close(writer)
    return numbers


def _report_results(session: pytest.Session, workers: Mapping[Connection, ForkProcess]) -> None:
    hook = session.config.hook
    missing = {item.nodeid: item for item in session.items}
    open_results = list(workers)
    while open_results:
        for results in wait(open_results):
            try:
                received: list[dict[str, Any]] = results.recv()
            except EOFError:
                open_results.remove(results)
                continue
            for data in received:
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                missing.pop(report.nodeid, None)
                hook.pytest_runtest_logreport(report=report)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
    for item in missing.values():
        hook.pytest_runtest_logreport(report=_missing(item))


def _missing(item: pytest.Item) -> pytest.TestReport:
    text = "no result: the process that should have run this test ended early"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")


def _work(
    config: pytest.Config, files: Files, queue: int, results: Connection, temporary: Path
) -> None:
    """Run files until none is left, in a forked process."""
    capture: CaptureManager | None = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        # The files of captured output are shared with the other workers.
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    config.option.basetemp = temporary
    config._tmp_path_factory = type(config._tmp_path_factory).from_config(config, _ispytest=True)
    config.pluginmanager.register(_ResultSender(config, results))
    tests = _tests(files, queue)
    item = next(tests, None)
    while item is not None:
        # The next test is taken before this one ends, so that fixtures they share are kept.
        following = next(tests, None)
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following


def _tests(files: Files, queue: int) -> Iterator[pytest.Item]:
    while number := os.read(queue, _NUMBER_SIZE):
        yield from files[int.from_bytes(number, "big")]


class _ResultSender:
    """Sends the reports of a test to the process that shows them."""

    def __init__(self, config: pytest.Config, results: Connection) -> None:
        self._config = config
        self._results = results

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        serialize = self._config.hook.pytest_report_to_serializable
        self._results.send([serialize(config=self._config, report=report) for report in reports])
        return True
