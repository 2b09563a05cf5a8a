"""Run the real program and a mock model as processes."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pexpect

from hermes.testing.fake_openai.script import Script
from support.preloaded_python import PreloadedPython, run_python

HERMES_PROGRAM = str(Path(sys.executable).parent / "hermes")
TEST_TIMEOUT = 120
"""Timeout in seconds for anything on a busy machine."""


class FakeModelProcess:
    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    def requests(self, about: str = "") -> list[dict]:
        """The bodies of the model calls so far whose text contains `about`."""
        # What comes after the last end of a line is still being written.
        rows = [json.loads(line) for line in self._log.read_bytes().split(b"\n")[:-1]]
        calls = [row["body"] for row in rows if row["path"].endswith("/chat/completions")]
        return [json.loads(body) for body in calls if about in body]

    def keys_seen(self, about: str = "") -> list[str]:
        """The key (or empty) of every request so far whose text contains `about`."""
        rows = [json.loads(line) for line in self._log.read_bytes().split(b"\n")[:-1]]
        shown = [row["headers"].get("authorization", "") for row in rows if about in row["body"]]
        return [value.removeprefix("Bearer ") for value in shown]


@contextmanager
def fake_model_process(folder: Path, script: Script) -> Iterator[FakeModelProcess]:
    folder.mkdir(parents=True, exist_ok=True)
    file, log = folder / "script.json", folder / "requests.jsonl"
    file.write_bytes(msgspec.json.encode(script))
    log.touch()
    command = ["-m", "hermes.testing.fake_openai", "--script", str(file), "--log", str(log)]
    with PreloadedPython(command, env={}, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield FakeModelProcess(wait_for_data(server.stdout.fileno()).decode().strip(), log)
        finally:
            server.kill()


class CliResult(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]


class HermesCli:
    """An installation: a home, a working directory and an environment."""

    def __init__(self, root: Path, url: str) -> None:
        self.home = root / "home"
        self.work = root / "work"
        self.work.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "HERMES_HOME": str(self.home),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "sk-test-0123456789",
            "HERMES_INFERENCE_PROVIDER": "openai",
            "HERMES_INFERENCE_MODEL": "mock",
        }

    def __call__(self, *words: str | bytes, stdin: bytes | None = None, **env: str) -> CliResult:
        done = self.raw(*words, stdin=stdin, **env)
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def raw(
        self, *words: str | bytes, stdin: bytes | None = None, **env: str
    ) -> "subprocess.CompletedProcess[bytes]":
        return run_python(
            [HERMES_PROGRAM, *words],
            cwd=self.work,
            env=self.env | env,
            stdin=stdin,
            timeout=TEST_TIMEOUT,
        )

    @contextmanager
    def running(self, *words: str) -> Iterator["RunningCli"]:
        with PreloadedPython(
            [HERMES_PROGRAM, *words],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield RunningCli(process)
            finally:
                process.kill()

    @contextmanager
    def terminal(self, *words: str, **env: str) -> Iterator[pexpect.spawn]:
        """A line-mode chat with colours in a terminal with 80 columns."""
        with self.shell_terminal("--cli", *words, **env) as child:
            yield child

    @contextmanager
    def shell_terminal(self, *words: str, **env: str) -> Iterator[pexpect.spawn]:
        """Any command in a terminal with 80 columns."""
        child = pexpect.spawn(
            HERMES_PROGRAM,
            [*words],
            cwd=str(self.work),
            env=self.env | env,
            encoding="utf-8",
            codec_errors="replace",
            dimensions=(24, 80),
            timeout=TEST_TIMEOUT,
        )
        child.delaybeforesend = None
        try:
            yield child
        finally:
            child.close(force=True)

    def configure(self, text: str) -> None:
        self.home.mkdir(exist_ok=True)
        (self.home / "config.yaml").write_text(text)


class RunningCli:
    """A running process; its output is awaited without sleeping."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.output = b""

    def wait_for(self, text: str) -> None:
        """Read stdout until the text appears."""
        assert self.process.stdout is not None
        while text.encode() not in self.output:
            data = wait_for_data(self.process.stdout.fileno())
            assert data, f"ended before {text!r}; said {self.output!r}"
            self.output += data

    def send_signal(self, number: signal.Signals) -> CliResult:
        """Send the signal and wait for the process to exit."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=TEST_TIMEOUT)
        return CliResult(self.process.returncode, (self.output + out).decode(), err.decode())


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that the system does not hand out, but that can be listened on."""
    with socket.socket() as held:
        # Ours does not listen, so it is in the way of no server, which all take a port so.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def wait_for_data(fd: int) -> bytes:
    ready, _, _ = select.select([fd], [], [], TEST_TIMEOUT)
    assert ready, "nothing came"
    return os.read(fd, 65536)


def exit_status(child: pexpect.spawn) -> int | None:
    """The exit status; drains the output, which could block the program's exit."""
    child.expect(pexpect.EOF)
    child.wait()
    return child.exitstatus


def without_durations(shown: str) -> str:
    """Remove the durations that are shown for slow calls."""
    return re.sub(r"\d+\.\d s · ", "", shown)


class Fifo:
    """A named pipe through which a command reports its progress."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def lines(self) -> Sequence[str]:
        return wait_for_data(self._fd).decode().split()

    def wait_released(self) -> None:
        """Wait until no process has it open; process ids are unknown inside a sandbox."""
        reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        os.close(self._fd)
        self._fd = reader
        poll = select.poll()
        poll.register(reader, 0)
        assert poll.poll(TEST_TIMEOUT * 1000), f"somebody still holds {self.path}"

    def close(self) -> None:
        os.close(self._fd)


def wait_for_process_exit(pid: int) -> None:
    """Wait until the process is gone; fail on timeout."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([fd], [], [], TEST_TIMEOUT)
    finally:
        os.close(fd)
    assert ready, f"process {pid} lives on"
