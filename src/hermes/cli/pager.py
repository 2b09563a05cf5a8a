"""Show a long text in the user's pager."""

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping

from hermes.schema.errors import UsageError

_PAGERS = (("less", "-R"), ("more",))


def show_in_pager(text: str, env: Mapping[str, str]) -> bool:
    """Show a text in $PAGER, less or more; False if there is none. Raises `UsageError`."""
    command = _pager_command(env)
    if not command:
        return False
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        try:
            process = subprocess.Popen(command, env=dict(env), stdin=file)  # noqa: S603 - the user's choice
        except OSError as error:
            raise UsageError(
                f"Cannot start the pager {command[0]!r}: {error.strerror}.",
                hint="Choose another one, for example: export PAGER=less",
            ) from error
        _wait(process)
    return True


def _wait(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the pager to exit; Ctrl+C is meant for the pager."""
    while True:
        try:
            process.wait()
        except KeyboardInterrupt:
            continue
        return


def _pager_command(env: Mapping[str, str]) -> list[str]:
    try:
        if chosen := shlex.split(env.get("PAGER", "")):
            return chosen
    except ValueError as error:
        raise UsageError(f"$PAGER is not a valid command: {error}.") from error
    return next(
        ([*pager] for pager in _PAGERS if shutil.which(pager[0], path=env.get("PATH"))), list[str]()
    )
