"""The catalog of texts: everything that is shown is in it, and nothing else."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import hermes.web
from hermes.ports.jobs import FireState
from hermes.ports.ledger import ChangeState
from hermes.schema.board import RunOutcome, TaskStatus
from hermes.web.texts import state_text

ROOT = Path(hermes.web.__file__).parent
DYNAMIC = ("choice_", "task_", "tool_", "nav_", "http_", "job_", "learning_", "method_", "tab_",
           "role_", "make_", "server_", "hook_", "by_", "level_", "hours_", "begun_",
           "state_")  # fmt: skip
"""Texts whose keys are put together."""


def test_every_text_is_in_the_catalog_and_used() -> None:
    catalog = msgspec.json.decode((ROOT / "texts.json").read_bytes(), type=dict[str, str])
    python = "".join(path.read_text() for path in ROOT.rglob("*.py"))
    scripts = "".join(path.read_text() for path in ROOT.glob("static/*.js"))
    shown = set(re.findall(r'\btext\(\s*"(\w+)"', python))
    shown |= {f"js_{name}" for name in re.findall(r'\bt\(\s*"(\w+)"', scripts)}
    assert shown <= set(catalog)
    named = set(re.findall(r'"(\w+)"', python + scripts))
    unused = {
        key
        for key in catalog.keys() - shown
        if key.removeprefix("js_") not in named and not key.startswith(DYNAMIC)
    }
    assert unused == set()


def test_states_and_columns_are_in_the_catalog() -> None:
    catalog = msgspec.json.decode((ROOT / "texts.json").read_bytes(), type=dict[str, str])
    kinds: Sequence[Iterable[str]] = (TaskStatus, RunOutcome, FireState, ChangeState)
    assert {one for kind in kinds for one in kind if f"state_{one}" not in catalog} == set()
    assert state_text(TaskStatus.TODO) == "to do"
    assert state_text("of another program") == "of another program"
