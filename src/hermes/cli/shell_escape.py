"""Run a command that the user typed after `!`, and read an image from the clipboard."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from hermes.schema.errors import UsageError
from hermes.schema.shell import ShellResult

MAX_OUTPUT = 100_000
"""Maximum characters kept from the end of the output."""
_READ_SIZE = 64 * 1024
_CLIPBOARD_SECONDS = 5
_CLIPBOARD_COMMANDS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)


class UserShell:
    """The user's own shell: commands run as if typed in a terminal, outside the sandbox."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False

    def run(self, command: str, folder: str, show: Callable[[str], None]) -> ShellResult:
        """Run to the end; `show` receives the output as it comes. Raises `UsageError`."""
        shell = self._env.get("SHELL") or "/bin/sh"
        try:
            process = subprocess.Popen(  # noqa: S603 - typed by the user
                [shell, "-c", command], cwd=folder, env=self._env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"Cannot run {shell}: {error.strerror}.") from error
        self._process, self._ending = process, False
        output = ""
        with process:
            stream = process.stdout
            while stream is not None and (data := os.read(stream.fileno(), _READ_SIZE)):
                text = data.decode("utf-8", "replace")
                output = (output + text)[-MAX_OUTPUT:]
                show(text)
        self._process = None
        return ShellResult(command, output, process.returncode)

    def interrupt(self) -> None:
        """End the running command, if any; kill it if it was asked to end before."""
        if (process := self._process) is None:
            return
        number = signal.SIGKILL if self._ending else signal.SIGTERM
        self._ending = True
        with suppress(OSError):
            os.killpg(process.pid, number)


def clipboard_image(env: Mapping[str, str], folder: Path) -> str:
    """Save the image in the clipboard; return its path. Raises `UsageError` if there is none."""
    available = [
        command for command in _CLIPBOARD_COMMANDS if shutil.which(command[0], path=env.get("PATH"))
    ]
    if not available:
        raise UsageError(
            "Images cannot be pasted here: wl-paste, xclip and pngpaste are not installed.",
            hint="Drop the file into the terminal, or name it: @file:photo.png",
        )
    for command in available:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                command, env=dict(env), capture_output=True, check=False, timeout=_CLIPBOARD_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            number, path = tempfile.mkstemp(prefix="pasted-", suffix=".png", dir=folder)
            with os.fdopen(number, "wb") as file:
                file.write(done.stdout)
            return path
    raise UsageError("There is no image in the clipboard.")
