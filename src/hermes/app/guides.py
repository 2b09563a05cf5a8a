"""Which files of a project tell how things are done, and whether the owner vouched for them."""

import os
from functools import cached_property
from pathlib import Path

from hermes.app.context import origins_of, project_files
from hermes.commands.services import Guide
from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.kit.files import read_ordinary
from hermes.schema.errors import UsageError
from hermes.tools.origins import Origins
from hermes.tools.trusted import GUIDES, LARGEST


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
        return [
            Guide(str(path), self._origins.speaks(path, data, place), _text(data))
            for path, data in project_files(place)
        ]

    def vouch(self, workspace: str, name: str) -> Guide:
        """As it stands now; a change of it has to be vouched for anew."""
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
            data = read_ordinary(real, LARGEST)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
        self._origins.trusted.vouch(real, data)
        return Guide(str(real), True, _text(data))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()
