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
def test_toolsets_resolve_to_distinct_tools(names: list[str], tools: list[str]):
    assert tools_of(names) == tools


def test_unknown_toolset_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="Unknown toolset: fiel") as caught:
        tools_of(["file", "fiel"])
    assert caught.value.hint == "Did you mean file?"
    with pytest.raises(UsageError) as caught:
        tools_of(["nothing-like-it"])
    assert caught.value.hint == f"Known toolsets: {', '.join(known_toolsets())}."


def test_composites_contain_existing_toolsets(tmp_path: Path):
    assert {part for parts in COMPOSITES.values() for part in parts} <= set(TOOLSETS)
    assert {name for names in TOOLSETS.values() for name in names} == {*all_tools(tmp_path)}
