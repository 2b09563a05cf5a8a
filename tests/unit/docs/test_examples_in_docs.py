"""What the guides show besides blocks of commands: commands within sentences, and settings."""

import re
import shlex
from pathlib import Path

from hermes.cli.arguments import build_parser
from hermes.cli.main import _take_profile, _take_verb  # pyright: ignore[reportPrivateUsage]
from hermes.cli.verbs.config.lint import check_settings
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.schema.errors import UsageError

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "channels").glob("*.md")),
]
INLINE = re.compile(r"`(hermes(?: [^`]+)?)`")
BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
VARIABLE = re.compile(r"\$\{(\w+)\}")
INCOMPLETE = re.compile(r"needs an action:|arguments are required: --")
"""A sentence may name a group of commands, or leave out an option."""
MAX_MISSING = 6
"""Arguments that a sentence may leave out."""
NOT_SETTINGS = ("name: diary\n",)
"""The beginnings of blocks that are other files: the manifest of a hook."""
UNKNOWN_ON_PURPOSE = ("example",)
"""A platform that the guide to channels adds."""


def problem_of(line: str) -> str:
    """Why the command line would not be understood; arguments at its end may be missing."""
    plain = line.partition(" < ")[0].replace("[", "").replace("]", "")
    # `start|stop` stands for both; the first one is tried.
    words = [word.partition("|")[0] for word in shlex.split(plain)[1:]]
    if words[:1] == ["COMMAND"]:
        words[0] = "chat"
    _, words = _take_profile(words)
    problem = ""
    for missing in range(MAX_MISSING):
        try:
            verb, rest = _take_verb([*words, *["1"] * missing])
            build_parser(verb).parse_args(rest)
        except UsageError as error:
            problem = f"{line}: {error}"
            if INCOMPLETE.search(problem):
                return ""
        except SystemExit:  # --help
            return ""
        else:
            return ""
    return problem


def test_commands_within_sentences_are_understood() -> None:
    lines = {line for page in PAGES for line in INLINE.findall(page.read_text())}
    assert len(lines) > 100
    assert [found for line in sorted(lines) if (found := problem_of(line))] == []


def test_commands_that_do_not_exist_are_found() -> None:
    for line in ("hermes kanban undone TASK", "hermes logs --nothing", "hermes nothing"):
        assert problem_of(line), line


def test_settings_in_the_guides_are_valid_and_have_an_effect(tmp_path: Path) -> None:
    found: list[str] = []
    (tmp_path / "profiles" / "work").mkdir(parents=True)
    blocks = [(page, text) for page in PAGES for _, text in BLOCK.findall(page.read_text())]
    assert len(blocks) > 20
    for page, indented in blocks:
        lines = indented.splitlines(keepends=True)
        margin = len(lines[0]) - len(lines[0].lstrip())
        text = "".join(line[margin:] for line in lines)
        if text.startswith(NOT_SETTINGS):
            continue
        (tmp_path / "config.yaml").write_text(text)
        variables = dict.fromkeys(VARIABLE.findall(text), "value-of-a-variable")
        env = Env({"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path), **variables})
        found += [
            f"{page.name}: {problem}"
            for problem in check_settings(resolve_home(env), env)
            if not set(UNKNOWN_ON_PURPOSE).intersection(map(str, problem.path))
        ]
    assert found == []
