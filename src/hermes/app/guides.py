"""Which files of a project tell how things are done, and whether the owner vouched for them."""

import os
from functools import cached_property
from pathlib import Path

from hermes.app.context import origins_of, printable, project_files, read_guide
from hermes.commands.services import Guide
from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.kit.files import advice
from hermes.schema.errors import ToolError, UsageError
from hermes.tools.origins import Origins
from hermes.tools.trusted import GUIDES


class ProjectGuides:
    """Implements `hermes.commands.services.Guides`."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock

    @cached_property
    def _origins(self) -> Origins:
        return origins_of(self._home, self._clock)

    def of(self, workspace: str) -> list[Guide]:
        place = Path(workspace)
        if not workspace:
            return []
        return [
            Guide(printable(path), self._origins.speaks(path, data, place), _text(data))
            for path, data in project_files(place)
        ]

    def vouch(self, workspace: str, name: str) -> Guide:
        """As it stands now; a change of it has to be vouched for anew."""
        if not workspace:
            raise UsageError("This session has no folder in which a file could be trusted.")
        path = Path(os.path.realpath(workspace), name)
        real = Path(os.path.realpath(path))
        known = [os.path.realpath(one) for one, _ in project_files(Path(workspace))]
        inside = real.is_relative_to(os.path.realpath(workspace)) and real.name in GUIDES
        if not inside and str(real) not in known:
            raise UsageError(
                f"{name} does not tell how things are done here.",
                hint=f"Such files are called {', '.join(GUIDES)}; /trust lists those in use.",
            )
        try:
            data = read_guide(real)
        except OSError as error:
            raise UsageError(f"{printable(path)} cannot be read: {error.strerror}.") from error
        except ToolError as error:
            raise UsageError(f"{printable(path)} cannot be read: {error}") from error
        self._keep(real, data)
        return Guide(printable(real), True, _text(data))

    def _keep(self, real: Path, data: bytes) -> None:
        try:
            self._origins.trusted.keep(real, data)
        except OSError as error:
            raise UsageError(
                f"{printable(real)} is not followed: that you vouch for it could not be written "
                f"down: {error.filename}: {error.strerror}.",
                hint=advice(error, "Make that a file that you may write, then try again."),
            ) from error


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()
