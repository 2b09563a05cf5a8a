import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from msgspec import field

from hermes.kit.redact import MASK, Redactor
from hermes.logs import (
    FileLogHandler,
    Logs,
    LogScope,
    LogSettings,
    RotatingFile,
    log_to,
)


@pytest.fixture
def begin(tmp_path):
    """Start logging to a folder, and stop it after the test."""
    started = []

    def begin(**settings: object):
        logs = Logs(tmp_path / "logs", LogSettings(**settings), Redactor(["hunter22"]))
        started.append(logs)
        return tmp_path / "logs"

    yield begin
    for logs in started:
        logs.close()


def test_no_file_before_the_first_record(begin):
    folder = begin()
    logging.getLogger("hermes.x").debug("below the level")
    assert not folder.exists()
    logging.getLogger("hermes.x").info("hello")
    assert [path.name for path in folder.iterdir()] == ["agent.log"]


def test_errors_go_to_both_files(begin):
    folder = begin()
    log = logging.getLogger("hermes.x")
    log.info("fine")
    log.warning("odd")
    log.error("bad")
    lines = (folder / "agent.log").read_text().splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == ["fine", "odd", "bad"]
    assert [li.split("]")[1] for li in (folder / "errors.log").read_text().splitlines()] == [
        " hermes.x: odd",
        " hermes.x: bad",
    ]


def test_secrets_are_masked_in_messages_arguments_and_tracebacks(begin):
    folder = begin()
    log = logging.getLogger("hermes.x")
    try:
        int("the key is hunter22")
    except ValueError:
        log.exception("with %s and sk-abcdefghijklmnopqrstuvwx", "hunter22")
    for name in ("agent.log", "errors.log"):
        text = (folder / name).read_text()
        assert "hunter22" not in text
        assert "abcdefghijklmnopqrstuvwx" not in text
        assert f"'the key is {MASK}'" in text


def test_log_files_are_private(begin):
    folder = begin()
    logging.getLogger("hermes.x").warning("x")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "agent.log").stat().st_mode & 0o777 == 0o600


def test_level_is_applied(begin):
    folder = begin(level="warning")
    logging.getLogger("hermes.x").info("quiet")
    logging.getLogger("hermes.x").warning("loud")
    assert "quiet" not in (folder / "agent.log").read_text()


def test_unknown_level_means_info(begin):
    folder = begin(level="chatty")
    logging.getLogger("hermes.x").debug("quiet")
    logging.getLogger("hermes.x").info("loud")
    log = (folder / "agent.log").read_text()
    assert "quiet" not in log
    assert "loud" in log


def test_debug_level_writes_everything(begin):
    folder = begin(level=" Debug ")
    logging.getLogger("hermes.x").debug("quiet")
    assert "quiet" in (folder / "agent.log").read_text()


def test_close_restores_logging(tmp_path):
    names = ("", "hermes", "asyncio", "aiohttp")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    logs = Logs(tmp_path, LogSettings(level="debug"), Redactor())
    assert (loggers[0].level, loggers[0].handlers) == before[0]
    logs.close()
    assert [(logger.level, logger.handlers) for logger in loggers] == before


def test_write_error_is_reported_once_on_stderr(begin, capsys, tmp_path):
    (tmp_path / "logs").write_text("in the way")
    begin()
    for _ in range(3):
        logging.getLogger("hermes.x").info("lost")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("hermes: cannot write") == 1


def test_surrogates_and_bad_arguments_are_tolerated(tmp_path, capsys):
    log = FileLogHandler(RotatingFile(tmp_path / "a.log", 0, 0), Redactor(), logging.INFO)
    for message, arguments in (("surrogate \ud800", ()), ("%d", ("not a number",)), ("after", ())):
        log.handle(logging.LogRecord("x", logging.INFO, "f", 1, message, arguments, None))
    log.close()
    lines = (tmp_path / "a.log").read_text().splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == ["surrogate \\ud800", "after"]
    assert capsys.readouterr().out == ""


def test_full_file_is_rotated_and_the_oldest_copy_deleted(tmp_path):
    file = RotatingFile(tmp_path / "a.log", max_bytes=10, keep=2)
    for number in range(5):
        file.append(f"record {number}".encode())
    file.close()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.log": "record 4",
        "a.log.1": "record 3",
        "a.log.2": "record 2",
    }


def test_records_share_a_file_until_it_is_full(tmp_path):
    file = RotatingFile(tmp_path / "a.log", max_bytes=10, keep=1)
    for record in (b"aaa\n", b"bbb\n", b"ccc\n"):
        file.append(record)
    file.close()
    assert (tmp_path / "a.log").read_bytes() == b"ccc\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"aaa\nbbb\n"


def test_record_larger_than_the_limit_is_written(tmp_path):
    file = RotatingFile(tmp_path / "a.log", max_bytes=4, keep=1)
    file.append(b"much too long")
    file.append(b"x")
    file.close()
    assert (tmp_path / "a.log.1").read_bytes() == b"much too long"


def test_full_file_is_replaced_without_copies(tmp_path):
    file = RotatingFile(tmp_path / "a.log", max_bytes=4, keep=0)
    for record in (b"1234", b"5678"):
        file.append(record)
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]
    assert (tmp_path / "a.log").read_bytes() == b"5678"


def test_rotation_by_another_process_is_followed(tmp_path):
    one = RotatingFile(tmp_path / "a.log", max_bytes=10, keep=5)
    two = RotatingFile(tmp_path / "a.log", max_bytes=10, keep=5)
    one.append(b"first..")
    two.append(b"second.")
    one.append(b"third..")
    (tmp_path / "a.log").unlink()
    one.append(b"fourth.")
    one.close()
    two.close()
    assert (tmp_path / "a.log").read_bytes() == b"fourth."
    assert (tmp_path / "a.log.2").read_bytes() == b"first.."


def test_setting_up_logs_loads_no_handlers_module():
    code = (
        "import sys; from pathlib import Path\n"
        "from hermes.kit.redact import Redactor\n"
        "from hermes.logs import Logs, LogSettings\n"
        "Logs(Path('/nowhere'), LogSettings(), Redactor(['secret-value']))\n"
        "print([m for m in ('logging.handlers', 'socket', 'asyncio', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert not Path("/nowhere").exists()


def test_two_homes_in_one_process_have_separate_logs(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    shares = LogScope.OWN_AND_SHARED, LogScope.OWN
    process = Logs(first, LogSettings(level="WARNING"), Redactor(["hunter22"]), shares[0])
    process.add_redactor(Redactor(["swordfish"]))
    other = Logs(second, LogSettings(level="INFO"), Redactor(["swordfish"]), shares[1])
    log = logging.getLogger("hermes.x")
    log.warning("shared: hunter22 and swordfish")
    with log_to(first):
        log.warning("from the first")
    with log_to(second):
        log.info("from the second: swordfish")
    other.close()
    log.warning("after")
    process.close()
    lines = (first / "agent.log").read_text().splitlines()
    assert [line.partition("hermes.x: ")[2] for line in lines] == [
        f"shared: {MASK} and {MASK}",
        "from the first",
        "after",
    ]
    assert (second / "agent.log").read_text().rstrip().endswith(f"from the second: {MASK}")


class SlowFile(RotatingFile):
    """A record is being written until `go` is set."""

    began: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    done: list[str] = field(default_factory=list)

    def append(self, record: bytes) -> None:
        self.began.set()
        assert self.go.wait(60)
        super().append(record)
        self.done.append("written")

    def close(self) -> None:
        super().close()
        self.done.append("closed")


def test_close_waits_for_a_write_in_another_thread(tmp_path):
    file = SlowFile(tmp_path / "agent.log", 0, 1)
    log = FileLogHandler(file, Redactor(), logging.INFO)
    record = logging.LogRecord("hermes.x", logging.INFO, "", 0, "last record", (), None)
    closing = threading.Event()

    def close() -> None:
        closing.set()
        log.close()

    threads = [threading.Thread(target=log.handle, args=(record,)), threading.Thread(target=close)]
    threads[0].start()
    assert file.began.wait(60)
    threads[1].start()
    assert closing.wait(60)
    threads[1].join(0.05)
    file.go.set()
    for thread in threads:
        thread.join(60)
    assert file.done == ["written", "closed"]
    assert "last record" in file.path.read_text()
