"""The list of sessions in the terminal UI: whoever searches sees where their words stand."""

import io
from contextlib import AbstractContextManager
from pathlib import Path

from hermes.cli.context import CliContext
from hermes.cli.full_screen import AtTerminal
from hermes.config.env import Env
from hermes.local.partner import Partner
from hermes.tui.screens.rows import session_row
from past_sessions import keep, talk


def nobody() -> AbstractContextManager[Partner]:
    raise AssertionError("nobody is needed to look")


def test_a_session_that_is_found_says_where(tmp_path: Path) -> None:
    said = ("Plan the garden", "Put the beans into the first bed.")
    keep(tmp_path / "state.db", *talk("ses_one", words=said), *talk("ses_two", title="Beans"))
    streams = (io.StringIO(), io.StringIO(), io.StringIO())
    companion = AtTerminal(nobody, CliContext(Env({"HERMES_HOME": str(tmp_path)}), None, streams))
    by_name, by_words = companion.sessions("beans")
    assert (by_name.id, by_name.found) == ("ses_two", "")
    assert by_words.id == "ses_one"
    assert by_words.found == "Put the beans into the first bed."
    row = session_row(by_words)
    assert row.label == "Plan the garden"
    assert row.detail.endswith("2 messages\n  Put the beans into the first bed.")
    assert [one.found for one in companion.sessions("")] == ["", ""]
