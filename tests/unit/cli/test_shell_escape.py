"""Commands typed after `!`, and images from the clipboard."""

import threading
from pathlib import Path

import pytest

from hermes.cli.shell_escape import UserShell, clipboard_image
from hermes.schema.errors import UsageError

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "SHELL": "/bin/sh"}


def test_command_runs_in_the_folder_and_its_output_is_shown(tmp_path: Path) -> None:
    shown: list[str] = []
    done = UserShell(ENV).run("pwd; echo wrong >&2; exit 3", str(tmp_path), shown.append)
    assert done.output == "".join(shown) == f"{tmp_path}\nwrong\n"
    assert done.exit_code == 3


def test_command_can_be_interrupted(tmp_path: Path) -> None:
    shell, started = UserShell(ENV), threading.Event()
    shell.interrupt()
    ender = threading.Thread(target=lambda: (started.wait(60), shell.interrupt()))
    ender.start()
    done = shell.run("echo on; sleep 600", str(tmp_path), lambda _: started.set())
    ender.join()
    assert (done.output, done.exit_code) == ("on\n", -15)


def test_shell_that_cannot_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/no/shell"):
        UserShell({"SHELL": "/no/shell"}).run("true", str(tmp_path), str)


def test_clipboard_image_is_saved(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not installed"):
        clipboard_image({"PATH": str(tmp_path)}, tmp_path / "images")
    program = tmp_path / "xclip"
    program.write_text("#!/bin/sh\nprintf picture\n")
    program.chmod(0o700)
    path = clipboard_image({"PATH": f"{tmp_path}:/bin"}, tmp_path / "images")
    assert Path(path).read_bytes() == b"picture"
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UsageError, match="no image"):
        clipboard_image({"PATH": f"{tmp_path}:/bin"}, tmp_path / "images")
