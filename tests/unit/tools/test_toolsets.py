from pathlib import Path

import pytest

from hermes.schema.errors import UsageError
from hermes.testing.tools import all_tools
from hermes.tools.catalog import built_in_toolsets, known_toolsets, tools_of
from support.cases import cases

SHELL = ["terminal", "process"]
FILES = ["read_file", "write_file", "patch", "search_files"]
LEARNING = ["memory", "skills_list", "skill_view", "skill_manage", "session_search"]


@cases(
    ("names", "tools"),
    [
        ([], []),
        (["file"], FILES),
        (["debugging"], [*SHELL, *FILES]),
        (["coding"], [*SHELL, *FILES, "todo", "execute_code"]),
        (
            ["todo", "hermes-cli", "todo"],
            ["todo", *SHELL, *FILES, "execute_code", "delegate_task", "clarify", "send_message",
             "cronjob", *LEARNING],
        ),
        (
            ["hermes-api-server"],
            [*SHELL, *FILES, "execute_code", "delegate_task", "todo", "send_message", "cronjob",
             *LEARNING],
        ),
        (["safe"], []),
    ],
)  # fmt: skip
def test_toolsets_resolve_to_distinct_tools(names: list[str], tools: list[str]):
    assert tools_of(names) == tools


def test_unknown_toolset_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="Unknown toolset: 'fiel") as caught:
        tools_of(["file", "fiel"])
    assert caught.value.hint == "Did you mean file?"
    with pytest.raises(UsageError) as caught:
        tools_of(["nothing-like-it"])
    assert caught.value.hint == f"Known toolsets: {', '.join(known_toolsets())}."


def test_composites_contain_existing_toolsets(tmp_path: Path):
    known = built_in_toolsets()
    assert {part for parts in known.composites.values() for part in parts} <= set(known.single)
    assert {name for names in known.single.values() for name in names} == {*all_tools(tmp_path)}
