"""Chat flags become conversation options."""

import os
from pathlib import Path

import pytest

from hermes.cli.arguments import build_parser
from hermes.cli.verbs.chat import conversation_options, image_paths
from hermes.ipc.client import ConversationOptions
from hermes.schema.errors import UsageError


def started(*words: str) -> ConversationOptions:
    return conversation_options(build_parser("chat").parse_args(words))


def test_options_without_flags_are_defaults() -> None:
    assert started() == ConversationOptions(cwd=str(Path.cwd()))


def test_every_flag_is_passed_on(tmp_path: Path) -> None:
    start = started(
        "-r", "abc", "-m", "m", "--provider", "p", "-t", "file, ,todo", "--max-turns", "4",
        "--source", "script", "--cwd", str(tmp_path),
    )  # fmt: skip
    assert start == ConversationOptions(
        cwd=str(tmp_path), moved=True, resume="abc", model="m", provider="p", source="script",
        toolsets=("file", "todo"), max_steps=4,
    )  # fmt: skip


def test_continue_selects_last_or_named_session() -> None:
    assert (started("-c").latest, started("-c").resume) == (True, "")
    assert started("-c", "a title").resume == "a title"


def test_missing_folder_is_rejected() -> None:
    with pytest.raises(UsageError, match="/nowhere is not a folder"):
        started("--cwd", "/nowhere")


def test_image_paths_are_absolute() -> None:
    assert image_paths(["a/../b.png", "/c.png", "~nobody-here/x", "\udcff.png"]) == (
        os.fsencode(Path.cwd() / "b.png"),
        b"/c.png",
        os.fsencode(Path.cwd() / "~nobody-here/x"),
        os.fsencode(Path.cwd()) + b"/\xff.png",
    )
