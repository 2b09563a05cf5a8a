"""`hermes tools`: toolsets are switched for one platform or for all, and nothing else changes."""

import io
import json
from pathlib import Path

import pytest

from hermes.app.toolbox import configured_toolsets
from hermes.app.toolsets import is_enabled
from hermes.cli.context import CliContext
from hermes.cli.parser import Parser
from hermes.cli.verbs import tools
from hermes.cli.verbs.tools.actions import perform
from hermes.config.env import Env
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.schema.errors import UsageError
from hermes.tools.toolsets import TOOLSETS


class Desk:
    def __init__(self, root: Path) -> None:
        self.env = Env({"HERMES_HOME": str(root / "home"), "HOME": str(root)})
        self.config_file = root / "home" / "config.yaml"

    def __call__(self, line: str) -> str:
        parser = Parser(prog="hermes tools")
        tools.add_arguments(parser)
        out = io.StringIO()
        context = CliContext(self.env, None, (io.StringIO(), out, io.StringIO()))
        assert perform(parser.parse_args(line.split()), context) == 0
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
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_a_small_model_is_not_offered_is_told(desk: Desk) -> None:
    assert "small" not in desk("list")
    desk.write("model: {provider: embedded}\n")
    assert "offered only a few of these" in desk("list")


def test_at_first_everything_is_on(desk: Desk) -> None:
    lines = desk("list").splitlines()
    assert lines[0].split() == ["TOOLSET", "CLI", "TOOLS"]
    assert lines[1].split()[:3] == ["file", "on", "read_file,"]
    assert not any(" off " in line for line in lines)
    assert not desk.config_file.exists()


def test_off_everywhere_and_on_again(desk: Desk) -> None:
    desk("disable memory skills")
    assert desk.config.agent.disabled_toolsets == ("memory", "skills")
    assert desk.on("cli") == desk.on("webhook") == set(TOOLSETS) - {"memory", "skills"}
    desk("enable memory")
    assert desk.on("cli") == set(TOOLSETS) - {"skills"}
    desk("enable skills")
    assert desk.on("cli") == desk.on("webhook") == set(TOOLSETS)


def test_off_on_one_platform_takes_only_its_own_set_apart(desk: Desk) -> None:
    desk.write("# mine\nagent:\n  max_turns: 5  # few\n")
    desk("disable terminal --platform webhook")
    assert desk.on("webhook") == set(TOOLSETS) - {"terminal"}
    assert desk.on("cli") == set(TOOLSETS)
    assert desk.config_file.read_text().startswith("# mine\nagent:\n  max_turns: 5  # few\n")
    desk("enable terminal --platform webhook")
    assert desk.on("webhook") == set(TOOLSETS)


def test_an_empty_list_means_no_tools(desk: Desk) -> None:
    desk.write("platform_toolsets:\n  webhook: []\n")
    assert desk.on("webhook") == set()
    assert desk.on("cli") == set(TOOLSETS)


def test_a_platform_without_any_tool_has_really_none(desk: Desk) -> None:
    desk("disable hermes-cli --platform webhook")
    assert desk.on("webhook") == set()
    desk("enable todo --platform webhook")
    assert desk.on("webhook") == {"todo"}
    assert configured_toolsets(desk.config, "webhook") == ["todo"]


def test_enabling_everywhere_reaches_platforms_with_lists_of_their_own(desk: Desk) -> None:
    desk.write("platform_toolsets:\n  cli: [file]\n  webhook: [todo]\n")
    desk("enable memory")
    assert desk.on("cli") == {"file", "memory"}
    assert desk.on("webhook") == {"todo", "memory"}


def test_what_the_settings_name_and_nobody_knows_stays(desk: Desk) -> None:
    desk.write("platform_toolsets:\n  cli: [file, web, coding]\n")
    assert "  web: it is in the settings" in desk("list")
    desk("disable terminal --platform cli")
    assert desk.config.platform_toolsets["cli"] == ("file", "web", "todo", "code_execution")


def test_a_sandbox_that_is_not_there_is_told(desk: Desk) -> None:
    desk.write("terminal:\n  backend: modal\n")
    (row,) = [one for one in json.loads(desk("list --json")) if one["name"] == "terminal"]
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
def test_a_slip_is_pointed_out(desk: Desk, line: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        desk(line)
    assert caught.value.hint == hint
    assert not desk.config_file.exists()


def test_one_platform_cannot_have_what_is_off_everywhere(desk: Desk) -> None:
    desk("disable file")
    with pytest.raises(UsageError, match="all platforms") as caught:
        desk("enable file --platform webhook")
    assert caught.value.hint == "Enable it everywhere: hermes tools enable file"


def test_it_is_said_that_roles_cut_further_in_chats(desk: Desk) -> None:
    assert "role" not in desk("list")
    desk.write("platforms:\n  telegram:\n    enabled: true\n")
    assert "a guest only reads" in desk("list")
    assert "/toolsets" in desk("list")
