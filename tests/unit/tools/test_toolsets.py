from pathlib import Path

import pytest

from hermes.schema.errors import UsageError
from hermes.testing.tools import all_tools
from hermes.tools.toolsets import COMPOSITES, TOOLSETS, known_toolsets, tools_of

SHELL = ["terminal", "process"]
FILES = ["read_file", "write_file", "patch", "search_files"]
LEARNING = ["memory", "skills_list", "skill_view", "skill_manage", "session_search"]
OTHERS = ["execute_code", "delegate_task", "send_message"]


@pytest.mark.parametrize(
    ("names", "tools"),
    [
        ([], []),
        (["file"], FILES),
        (["debugging"], [*SHELL, *FILES]),
        (["coding"], [*SHELL, *FILES, "todo", "execute_code"]),
        (["todo", "hermes-cli", "todo"], ["todo", *SHELL, *FILES, "clarify", *LEARNING, *OTHERS]),
        (["safe"], []),
    ],
)
def test_names_become_tools_each_once(names: list[str], tools: list[str]):
    assert tools_of(names) == tools


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="unknown toolset 'fiel'") as caught:
        tools_of(["file", "fiel"])
    assert caught.value.hint == "Did you mean file?"
    with pytest.raises(UsageError) as caught:
        tools_of(["nothing-like-it"])
    assert caught.value.hint == f"Known toolsets: {', '.join(known_toolsets())}."


def test_composites_are_made_of_toolsets_that_exist(tmp_path: Path):
    assert {part for parts in COMPOSITES.values() for part in parts} <= set(TOOLSETS)
    assert {name for names in TOOLSETS.values() for name in names} == {*all_tools(tmp_path)}
