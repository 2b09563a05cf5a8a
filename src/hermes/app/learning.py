"""What a profile learns, and where it lies: memory, skills, and the book of their changes.

Everything here is made when it is first needed: most turns need none of it.
"""

import shutil
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.ports.store import Store
from hermes.tools.catalog import Knowledge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.changes.change import Proposal
    from hermes.changes.ledger import Ledger
    from hermes.memory.notebook import Notebook
    from hermes.skills.curating import Ages, Curator
    from hermes.skills.editing import Editor
    from hermes.skills.gate import Surroundings
    from hermes.skills.shelf import Shelf
    from hermes.skills.usage import Usage

SNAPSHOT = ".skills_prompt_snapshot.json"


class Learning:
    def __init__(self, home: Home, env: Env, config: Config, store: Store, clock: Clock) -> None:
        self._home = home
        self._env = env
        self._config = config
        self._store = store
        self._clock = clock
        self.asks_for_memory = config.memory.write_approval
        """Whether every change of memory is the person's to decide; can be changed by them."""

    @cached_property
    def ledger(self) -> "Ledger":
        from hermes.changes.ledger import Ledger

        return Ledger(self._store, self._home.path, self._clock)

    @cached_property
    def notebook(self) -> "Notebook":
        from hermes.memory.entries import Limits
        from hermes.memory.notebook import Notebook

        settings = self._config.memory
        limits = Limits(settings.memory_char_limit, settings.user_char_limit)
        return Notebook(self._home.path, self.ledger, limits, self._clock)

    @cached_property
    def shelf(self) -> "Shelf":
        from hermes.skills.shelf import Shelf

        elsewhere = [Path(name).expanduser() for name in self._config.skills.external_dirs]
        return Shelf(self._home.skills, elsewhere, self._home.path / SNAPSHOT)

    @cached_property
    def usage(self) -> "Usage":
        from hermes.skills.usage import Usage

        return Usage(self._home.skills, self._clock)

    @cached_property
    def curator(self) -> "Curator":
        from hermes.skills.curating import Curator

        folder = self._home.skills
        return Curator(folder, self.shelf, self.usage, self.skill_editor, self._clock)

    @cached_property
    def skill_editor(self) -> "Editor":
        from hermes.skills.editing import Editor

        return Editor(self._home.path, self.shelf, self.usage, self.ledger, self._clock)

    async def accept(self, proposal: "Proposal") -> None:
        """A person wants it. Raises `Unfit`, `Full`, `BadSkill` or `Drifted` when it cannot be."""
        from hermes.skills.editing import KIND
        from hermes.skills.requests import accept

        if proposal.kind == KIND:
            await accept(self.skill_editor, proposal)
        else:
            await self.notebook.accept(proposal)

    def here(
        self, tools: Collection[str], toolsets: Collection[str], platform: str = ""
    ) -> "Surroundings":
        from hermes.skills.gate import Surroundings

        settings, path = self._config.skills, self._env.get("PATH", "")
        off = {*settings.disabled, *settings.platform_disabled.get(platform, ())}
        return Surroundings(
            tools=tools,
            toolsets=toolsets,
            has_variable=lambda name: bool(self._env.get(name, "")),
            has_program=lambda name: shutil.which(name, path=path) is not None,
            disabled=off,
        )

    def knowledge(self, tools: Callable[[], Collection[str]]) -> Knowledge:
        """For the tools: what the toolbox has is asked for when a skill wants to know."""
        return Knowledge(
            notebook=lambda: self.notebook,
            shelf=lambda: self.shelf,
            usage=lambda: self.usage,
            skill_editor=lambda: self.skill_editor,
            here=lambda: self.here(tools(), ()),
            ask_for_memory=lambda: self.asks_for_memory,
            ask_for_skills=lambda: self._config.skills.write_approval,
        )


def ages_of(config: Config) -> "Ages":
    from hermes.skills.curating import Ages

    settings = config.curator
    return Ages(
        stale=settings.stale_after_days,
        archive=settings.archive_after_days,
        keep=settings.backup.keep if settings.backup.enabled else 0,
    )
