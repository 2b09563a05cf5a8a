"""Memory, skills and the ledger of their changes, for one profile.

Everything is created on first use: most turns need none of it.
"""

from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.ports.store import Store
from hermes.tools.collaborators import LearningDeps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.learning.ledger import Ledger
    from hermes.learning.memory import MemoryStore
    from hermes.learning.skills.catalog import SkillCatalog, SkillEnvironment
    from hermes.learning.skills.curator import CurationLimits, Curator
    from hermes.learning.skills.editor import SkillEditor
    from hermes.learning.skills.usage import SkillUsageLog
    from hermes.ports.ledger import Proposal

SNAPSHOT_FILE = ".skills_prompt_snapshot.json"


class Learning:
    def __init__(self, home: Home, env: Env, config: Config, store: Store, clock: Clock) -> None:
        self._home = home
        self._env = env
        self._config = config
        self._store = store
        self._clock = clock
        self.memory_approval = config.memory.write_approval
        """Whether changes to memory need approval; can be switched at runtime."""

    @cached_property
    def ledger(self) -> "Ledger":
        from hermes.learning.ledger import Ledger

        return Ledger(self._store, self._home.path, self._clock)

    @cached_property
    def memory_store(self) -> "MemoryStore":
        from hermes.learning.memory import MemoryLimits, MemoryStore

        settings = self._config.memory
        limits = MemoryLimits(settings.memory_char_limit, settings.user_char_limit)
        return MemoryStore(self._home.path, self.ledger, limits, self._clock)

    @cached_property
    def skill_catalog(self) -> "SkillCatalog":
        from hermes.learning.skills.catalog import SkillCatalog

        external = [Path(name).expanduser() for name in self._config.skills.external_dirs]
        return SkillCatalog(self._home.skills, external, self._home.path / SNAPSHOT_FILE)

    @cached_property
    def usage(self) -> "SkillUsageLog":
        from hermes.learning.skills.usage import SkillUsageLog

        return SkillUsageLog(self._home.skills, self._clock)

    @cached_property
    def curator(self) -> "Curator":
        from hermes.learning.skills.curator import Curator

        folder = self._home.skills
        return Curator(folder, self.skill_catalog, self.usage, self.skill_editor, self._clock)

    @cached_property
    def skill_editor(self) -> "SkillEditor":
        from hermes.learning.skills.editor import SkillEditor

        return SkillEditor(
            self._home.path, self.skill_catalog, self.usage, self.ledger, self._clock
        )

    async def accept(self, proposal: "Proposal") -> None:
        """Apply an accepted proposal. Raises `InvalidOperation`, `MemoryFull`, `InvalidSkill` or
        `FileConflict`.
        """
        from hermes.learning.skills.editor import SKILL_KIND, accept_proposal

        if proposal.kind == SKILL_KIND:
            await accept_proposal(self.skill_editor, proposal)
        else:
            await self.memory_store.accept(proposal)

    def environment(
        self, tools: Collection[str], toolsets: Collection[str], platform: str = ""
    ) -> "SkillEnvironment":
        from hermes.learning.skills.catalog import SkillEnvironment

        def has_program(name: str) -> bool:
            import shutil  # importing these modules takes longer than reading all skills

            return shutil.which(name, path=path) is not None

        settings, path = self._config.skills, self._env.get("PATH", "")
        disabled = {*settings.disabled, *settings.platform_disabled.get(platform, ())}
        return SkillEnvironment(
            tools=tools,
            toolsets=toolsets,
            has_variable=lambda name: bool(self._env.get(name, "")),
            has_program=has_program,
            disabled=disabled,
        )

    def tool_deps(self, tools: Callable[[], Collection[str]]) -> LearningDeps:
        """Dependencies of the learning tools; `tools` is called when a skill asks for them."""
        return LearningDeps(
            memory_store=lambda: self.memory_store,
            skill_catalog=lambda: self.skill_catalog,
            usage=lambda: self.usage,
            skill_editor=lambda: self.skill_editor,
            skill_environment=lambda: self.environment(tools(), ()),
            memory_needs_approval=lambda: self.memory_approval,
            skills_need_approval=lambda: self._config.skills.write_approval,
        )


def curation_limits(config: Config) -> "CurationLimits":
    from hermes.learning.skills.curator import CurationLimits

    settings = config.curator
    return CurationLimits(
        stale=settings.stale_after_days,
        archive=settings.archive_after_days,
        backups=settings.backup.keep if settings.backup.enabled else 0,
    )
