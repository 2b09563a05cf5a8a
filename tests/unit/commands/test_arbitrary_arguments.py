"""Fuzz command arguments: every line gets a reply or a `HermesError`."""

import tempfile
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.commands.registry import standard_commands
from hermes.schema.errors import HermesError
from hermes.schema.scope import Role
from hermes.schema.terminal import QuitReply, ResumedReply, ScreenReply, SubmitReply, TextReply
from hermes.testing.scripted_model import answer_script
from support.examples import at_most
from support.slash_commands import command_harness

NAMES = [name for name in standard_commands().names if name != "save"]
WORDS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["0", "-1", "1", "99", "²", "--global", "--provider", "none", "list", "'", "9" * 5000]
    ),
    st.integers().map(str),
)
LINES = st.tuples(st.sampled_from(NAMES), st.lists(WORDS, max_size=3)).map(
    lambda typed: f"/{typed[0]} {' '.join(typed[1])}"
)


async def _type(lines: list[str], role: Role, in_chat: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with command_harness(Path(folder), answer_script("one")) as harness:
            await harness.conversation.submit("first")
            if in_chat:
                harness.as_chat(role)
            for line in lines:
                try:
                    reply = await harness.run(line)
                except HermesError:
                    continue
                assert isinstance(
                    reply, TextReply | ResumedReply | SubmitReply | QuitReply | ScreenReply
                )


@pytest.mark.slow
@at_most(25)
@given(st.lists(LINES, min_size=1, max_size=12), st.sampled_from(Role), st.booleans())
def test_any_arguments_get_a_reply_or_an_error(lines: list[str], role: Role, in_chat: bool) -> None:
    anyio.run(_type, lines, role, in_chat)
