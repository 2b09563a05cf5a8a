"""`hermes tools` turns toolsets on and off without other changes."""

import io
import json
from pathlib import Path

import pytest

from hermes.app.toolbox import configured_toolsets
from hermes.app.toolsets import is_enabled
from hermes.cli.arguments import build_parser
from hermes.cli.context import CliContext
from hermes.cli.verbs import tools
from hermes.config.env import Env
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.schema.errors import UsageError
from hermes.tools.catalog import OPTIONAL, built_in_toolsets

TOOLSETS = set(built_in_toolsets().single) - OPTIONAL


class ToolsCli:
    def __init__(self, root: Path) -> None:
        self.env = Env({"HERMES_HOME": str(root / "home"), "HOME": str(root)})
        self.config_file = root / "home" / "config.yaml"

    def __call__(self, line: str) -> str:
        out = io.StringIO()
        context = CliContext(self.env, None, (io.StringIO(), out, io.StringIO()))
        assert tools.run(build_parser("tools").parse_args(line.split()), context) == 0
        return out.getvalue()

    def write(self, text: str) -> None:
        self.config_file.parent.mkdir(exist_ok=True)
        self.config_file.write_text(text)

    @property
    def config(self) -> Config:
        context = CliContext(self.env, None, (io.StringIO(), io.StringIO(), io.StringIO()))
        return load_config(context.home(), self.env).config

    def on(self, platform: str) -> set[str]:
        return {name for name in TOOLSETS if is_enabled(self.config, name, platform)}


@pytest.fixture
def cli(tmp_path: Path) -> ToolsCli:
    return ToolsCli(tmp_path)


def test_embedded_model_note_is_shown(cli: ToolsCli) -> None:
    assert "small" not in cli("list")
    cli.write("model: {provider: embedded}\n")
    assert "gets only some of these" in cli("list")


def test_all_toolsets_are_on_by_default(cli: ToolsCli) -> None:
    lines = cli("list").splitlines()
    assert lines[0].split() == ["TOOLSET", "CLI", "TOOLS"]
    assert lines[1].split()[:3] == ["terminal", "on", "terminal,"]
    off = {line.split()[0] for line in lines if " off " in line}
    assert off == OPTIONAL
    assert not cli.config_file.exists()


def test_toolset_is_disabled_and_enabled_everywhere(cli: ToolsCli) -> None:
    cli("disable memory skills")
    assert cli.config.agent.disabled_toolsets == ("memory", "skills")
    assert cli.on("cli") == cli.on("webhook") == TOOLSETS - {"memory", "skills"}
    cli("enable memory")
    assert cli.on("cli") == TOOLSETS - {"skills"}
    cli("enable skills")
    assert cli.on("cli") == cli.on("webhook") == TOOLSETS


def test_disabling_on_one_platform_leaves_others_unchanged(cli: ToolsCli) -> None:
    cli.write("# mine\nagent:\n  max_turns: 5  # few\n")
    cli("disable terminal --platform webhook")
    assert cli.on("webhook") == TOOLSETS - {"terminal"}
    assert cli.on("cli") == TOOLSETS
    assert cli.config_file.read_text().startswith("# mine\nagent:\n  max_turns: 5  # few\n")
    cli("enable terminal --platform webhook")
    assert cli.on("webhook") == TOOLSETS


def test_empty_list_means_no_tools(cli: ToolsCli) -> None:
    cli.write("platform_toolsets:\n  webhook: []\n")
    assert cli.on("webhook") == set()
    assert cli.on("cli") == TOOLSETS


def test_platform_can_have_no_tools(cli: ToolsCli) -> None:
    cli("disable hermes-cli --platform webhook")
    assert cli.on("webhook") == set()
    cli("enable todo --platform webhook")
    assert cli.on("webhook") == {"todo"}
    assert configured_toolsets(cli.config, "webhook") == ["todo"]


def test_enabling_everywhere_updates_platform_lists(cli: ToolsCli) -> None:
    cli.write("platform_toolsets:\n  cli: [file]\n  webhook: [todo]\n")
    cli("enable memory")
    assert cli.on("cli") == {"file", "memory"}
    assert cli.on("webhook") == {"todo", "memory"}


def test_unknown_names_in_settings_are_kept(cli: ToolsCli) -> None:
    cli.write("platform_toolsets:\n  cli: [file, web, coding]\n")
    assert "  web: it is in the settings" in cli("list")
    cli("disable terminal --platform cli")
    assert cli.config.platform_toolsets["cli"] == ("file", "web", "todo", "code_execution")


def test_missing_sandbox_is_reported(cli: ToolsCli) -> None:
    cli.write("terminal:\n  backend: modal\n")
    (row,) = [one for one in json.loads(cli("list --json")) if one["name"] == "terminal"]
    assert row["on"] == {"cli": True}
    assert "'modal' is not supported" in row["missing"][0]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("disable termial", "Did you mean terminal?"),
        ("enable xyzzy", "See `hermes tools list`."),
        ("disable file --platform telegrm", "Did you mean telegram?"),
    ],
)
def test_misspelled_name_gets_a_suggestion(cli: ToolsCli, line: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        cli(line)
    assert caught.value.hint == hint
    assert not cli.config_file.exists()


def test_globally_disabled_toolset_cannot_be_enabled_on_one_platform(cli: ToolsCli) -> None:
    cli("disable file")
    with pytest.raises(UsageError, match="all platforms") as caught:
        cli("enable file --platform webhook")
    assert caught.value.hint == "Enable it everywhere: hermes tools enable file"


def test_roles_note_is_shown(cli: ToolsCli) -> None:
    assert "role" not in cli("list")
    cli.write("platforms:\n  telegram:\n    enabled: true\n")
    assert "guests have only the toolset safe" in cli("list")
    assert "/toolsets" in cli("list")
