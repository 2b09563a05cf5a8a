"""The settings of boards in `config.yaml`, and the descriptions of profiles in `profile.yaml`."""

from collections.abc import Mapping
from pathlib import Path

from hermes.config.home import Home, profile_home
from hermes.config.loader import as_yaml, load_config
from hermes.config.values import as_mapping
from hermes.kanban.board_settings import Orchestration, ProfileDescription, ViewSettings
from hermes.kit.files import write_atomic
from hermes.kit.text import head_and_tail
from hermes.schema.errors import ConfigError, HermesError

DESCRIPTION_FILE = "profile.yaml"
"""The public system stores a profile's description in this file, among other things."""
_MAX_SOUL = 8_192
_MAX_SKILLS = 200


class HomeBoardSettings:
    """Implements `BoardSettings` with the files of a home."""

    def __init__(self, home: Home, env: Mapping[str, str]) -> None:
        self._home = home
        self._env = env

    def view(self) -> ViewSettings:
        found = load_config(self._home, self._env).config.dashboard.kanban
        return ViewSettings(
            default_tenant=found.default_tenant,
            lane_by_profile=found.lane_by_profile,
            include_archived_by_default=found.include_archived_by_default,
            render_markdown=found.render_markdown,
        )

    def orchestration(self) -> Orchestration:
        found = load_config(self._home, self._env).config.kanban
        return Orchestration(
            orchestrator_profile=found.orchestrator_profile,
            default_assignee=found.default_assignee,
            auto_decompose=found.auto_decompose,
        )

    def change_orchestration(self, changes: Mapping[str, str | bool]) -> None:
        from hermes.config.editor import change_settings  # noqa: PLC0415 - slow to import

        texts = {f"kanban.{name}": _setting_text(value) for name, value in changes.items()}
        change_settings(self._home, self._env, lambda config: texts)

    def description(self, profile: str) -> ProfileDescription:
        try:
            found = self._profile_facts(profile)
        except (OSError, HermesError):
            return ProfileDescription()
        text = found.get("description")
        return ProfileDescription(
            text.strip() if isinstance(text, str) else "",
            automatic=found.get("description_auto") is True,
        )

    def describe(self, profile: str, description: ProfileDescription) -> None:
        facts = {
            **self._profile_facts(profile),
            "description": description.text,
            "description_auto": description.automatic,
        }
        write_atomic(self._file(profile), f"{as_yaml(facts)}\n".encode(), mode=0o600)

    def sources(self, profile: str) -> str:
        home = profile_home(self._home.root, profile)
        try:
            soul = home.soul.read_text("utf-8", "replace")
        except OSError:
            soul = ""
        skills = sorted({file.parent.name for file in home.skills.rglob("SKILL.md")})[:_MAX_SKILLS]
        names = ", ".join(skills) or "none"
        return f"Name: {profile}\n\nSkills: {names}\n\n{head_and_tail(soul, _MAX_SOUL)}"

    def _file(self, profile: str) -> Path:
        return profile_home(self._home.root, profile).path / DESCRIPTION_FILE

    def _profile_facts(self, profile: str) -> dict[str, object]:
        file = self._file(profile)
        try:
            text = file.read_text("utf-8")
        except FileNotFoundError:
            return {}
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file} is not text.") from error
        from hermes.config.yaml_parser import read_yaml  # noqa: PLC0415 - slow to import

        value, _ = read_yaml(text, file)
        return {str(key): one for key, one in (as_mapping(value) or {}).items()}


def _setting_text(value: str | bool) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value or None
