"""The session list of the terminal UI shows matching snippets."""

import io
from contextlib import AbstractContextManager
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.cli.verbs.chat.full_screen import TerminalClient
from hermes.config.env import Env
from hermes.ipc.client import AgentClient
from hermes.tui.picker import session_row
from support.stored_sessions import simple_session, write_store


def no_agent() -> AbstractContextManager[AgentClient]:
    raise AssertionError("listing sessions needs no agent")


def test_found_session_shows_the_matching_snippet(tmp_path: Path) -> None:
    texts = ("Plan the garden", "Put the beans into the first bed.")
    write_store(
        tmp_path / "hermes.db",
        *simple_session("ses_one", words=texts),
        *simple_session("ses_two", title="Beans"),
    )
    streams = (io.StringIO(), io.StringIO(), io.StringIO())
    companion = TerminalClient(
        no_agent, CliContext(Env({"HERMES_HOME": str(tmp_path)}), None, streams)
    )
    by_name, by_words = companion.sessions("beans")
    assert (by_name.id, by_name.snippet) == ("ses_two", "")
    assert by_words.id == "ses_one"
    assert by_words.snippet == "Put the beans into the first bed."
    row = session_row(by_words)
    assert row.label == "Plan the garden"
    assert row.detail.endswith("2 messages\n  Put the beans into the first bed.")
    assert [one.snippet for one in companion.sessions("")] == ["", ""]
