"""A pytest plugin that runs tests in several processes: `pytest --jobs 2`.

The tests are collected once; the workers are forks of the process that collected them. A worker
takes one test file at a time, so that the fixtures of a module are built once. Files that take long
come first: `tests/durations.json` has their seconds, and `--save-durations` writes it.
"""

import json
import os
from collections import Counter
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

DURATIONS = Path(__file__).parents[1] / "durations.json"
_SHORT = 3.0
"""Seconds of files whose duration is not worth saving."""
_SECONDS_PER_TEST = {"integration": 0.3, "unit": 0.02}
"""What a test of a file without a saved duration is assumed to take."""

_NUMBER_SIZE = 2
"""Bytes of a file's number. A pipe holds the numbers of all files and returns each of them once."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--jobs", type=int, default=1, help="number of processes that run tests")
    parser.addoption("--durations-file", type=Path, default=DURATIONS, help="seconds of test files")
    parser.addoption("--save-durations", action="store_true", help="write them after the run")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("save_durations"):
        config.pluginmanager.register(_DurationWriter(config))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    jobs: int = session.config.getoption("jobs")
    if jobs == 1 or session.testsfailed or session.config.getoption("collectonly"):
        return None
    _run_in_workers(session, jobs)
    return True


def _run_in_workers(session: pytest.Session, jobs: int) -> None:
    files = _by_file(session.items, session.config)
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


def _by_file(items: Sequence[pytest.Item], config: pytest.Config) -> Files:
    """Return the tests of each file, those that take longest first.

    The short ones at the end let all workers finish at about the same time.
    """
    saved, root = _saved_durations(config), config.rootpath
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]

    def seconds(tests: Sequence[pytest.Item]) -> float:
        path = tests[0].path
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else ""
        kind = next((part for part in path.parts if part in _SECONDS_PER_TEST), "unit")
        return saved.get(name, len(tests) * _SECONDS_PER_TEST[kind])

    return sorted(files, key=seconds, reverse=True)


def _saved_durations(config: pytest.Config) -> dict[str, float]:
    file: Path = config.getoption("durations_file")
    return json.loads(file.read_bytes()) if file.exists() else {}


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
        hook.pytest_runtest_logreport(report=_failure(item.nodeid, item.location, _LOST))
    for number, worker in enumerate(workers.values()):
        worker.join()
        if worker.exitcode == 1:
            name = f"fixtures of worker {number}"
            hook.pytest_runtest_logreport(report=_failure(name, (name, None, name), _NOT_ENDED))


_LOST = "no result: the process that should have run this test ended early"
_NOT_ENDED = "an error at the end of the process; its traceback is above"


def _failure(name: str, location: tuple[str, int | None, str], text: str) -> pytest.TestReport:
    return pytest.TestReport(name, location, {}, "failed", text, "call")


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
    setups = files[0][0].session._setupstate
    for number in _numbers(queue):
        # The next file is taken when this one has ended, by the first worker that is free. Until
        # then another file stands for it, so that the fixtures of the session are kept.
        other = files[number - 1][0] if len(files) > 1 else None
        tests = files[number]
        setups.teardown_exact(tests[0])
        for item, following in zip(tests, [*tests[1:], other], strict=True):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    setups.teardown_exact(None)


def _numbers(queue: int) -> Iterator[int]:
    while number := os.read(queue, _NUMBER_SIZE):
        yield int.from_bytes(number, "big")


class _DurationWriter:
    """Adds up the seconds of each file's tests and writes them at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.location[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = _saved_durations(self._config)
        known |= {file: round(seconds, 1) for file, seconds in self._seconds.items()}
        kept = {
            file: seconds
            for file, seconds in sorted(known.items())
            if seconds >= _SHORT and (self._config.rootpath / file).exists()
        }
        self._config.getoption("durations_file").write_text(json.dumps(kept, indent=1) + "\n")


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
