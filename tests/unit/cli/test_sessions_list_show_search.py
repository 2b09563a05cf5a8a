"""`hermes sessions list`, `show` and `search` on a real database."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from hermes.gateway.cross_post import framed
from hermes.kit.clock import SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.terminal_text import display_width
from hermes.ports.delegation import Task
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import NotFound
from hermes.schema.messages import Text, Trust, User
from hermes.schema.sessions import Session
from hermes.store.sqlite import open_store
from hermes.subagents.messages import task_text
from support.cli_process import TEST_TIMEOUT
from support.sessions_cli import SessionsCli
from support.stored_sessions import HOSTILE_TEXT, NOON, full_session, simple_session


@pytest.fixture
def cli(tmp_path: Path) -> SessionsCli:
    return SessionsCli(tmp_path / "home")


@pytest.mark.parametrize(
    "words", [("list",), ("search", "x"), ("stats",), ("optimize",), ("prune", "--source", "x")]
)
def test_reading_an_empty_home_creates_nothing(cli: SessionsCli, words: tuple[str, ...]) -> None:
    ran = cli(*words)
    assert (ran.code, ran.out, ran.err) == (0, "", "No sessions yet.\n")
    assert not cli.home.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("show", "x"),
        ("export", "x"),
        ("export", "--all"),
        ("rename", "x", "y"),
        ("delete", "x"),
        ("backup", "copy.db"),
    ],
)
def test_session_in_an_empty_home_is_not_found(cli: SessionsCli, words: tuple[str, ...]) -> None:
    with pytest.raises(NotFound, match="No sessions yet"):
        cli(*words)
    assert not cli.home.exists()


def test_list_is_sorted_by_last_use(cli: SessionsCli) -> None:
    cli.store(
        *simple_session(
            "20260131_000001_aaaaaa",
            at=NOON - timedelta(days=40),
            title="Old job (20260131_000001_aaaaaa)",
        ),
        *simple_session("20260131_000002_bbbbbb", at=NOON, words=["What is\nthis?", "A test."]),
        *simple_session(
            "20260131_000003_cccccc", at=NOON - timedelta(days=1), words=(), source="telegram"
        ),
    )
    ran = cli("list")
    header, *rows = ran.lines
    assert header.split() == ["ID", "LAST", "USED", "SOURCE", "MSGS", "TITLE"]
    assert [row.split()[0][-6:] for row in rows] == ["bbbbbb", "cccccc", "aaaaaa"]
    assert "(2 h ago)" in rows[0]
    assert rows[0].endswith("2  “What is this?”")
    assert rows[1].endswith("telegram     0  -")
    assert rows[2].endswith("  Old job")


def test_filters_select_sessions(cli: SessionsCli, tmp_path: Path) -> None:
    cli.store(
        *simple_session("a", at=NOON - timedelta(days=50), title="Alpha 100%", source="telegram"),
        *simple_session("b", at=NOON - timedelta(days=20), model="big", words=["x"] * 6),
        *simple_session("c", at=NOON - timedelta(hours=1), cwd=str(tmp_path)),
    )

    def chosen(*words: str) -> str:
        return "".join(document["id"] for document in cli("list", "--json", *words).documents)

    assert chosen() == "cba"
    assert chosen("-n", "2") == "cb"
    assert chosen("--source", "telegram") == "a"
    assert chosen("--model", "big") == "b"
    assert chosen("--title", "100%") == "a"
    assert chosen("--cwd", f"{tmp_path}/../{tmp_path.name}") == "c"
    assert chosen("--since", "30d") == "cb"
    assert chosen("--since", "30d", "--before", "7d") == "b"
    assert chosen("--older-than", "30d") == "a"
    assert chosen("--min-messages", "3") == "b"
    assert chosen("--max-messages", "5") == "ca"
    assert cli("list", "--source", "nowhere").err == "No matching sessions.\n"


def test_subagent_sessions_are_listed_by_goal_on_request(cli: SessionsCli) -> None:
    order = task_text(Task(goal="Count the\nleaves", context="of the oak"))
    cli.store(
        *simple_session("own", at=NOON, words=["Count them.", "Counting."]),
        *simple_session("sub", at=NOON, words=[order, "Seven."], source="subagent"),
    )
    assert [row["id"] for row in cli("list", "--json").documents] == ["own"]
    (row,) = cli("list", "--json", "--source", "subagent").documents
    assert (row["id"], row["preview"]) == ("sub", "Count the leaves")


def test_recently_used_session_is_not_old(cli: SessionsCli) -> None:
    late = [*simple_session("busy", at=NOON - timedelta(days=99), words=["x"] * 2)]
    cli.store(*late[:-1], type(late[-1])("busy", "r", late[-1].message, NOON))
    assert cli("list", "--older-than", "90d").err == "No matching sessions.\n"
    assert "No matching sessions" in cli("prune", "--older-than", "90d", "--yes").err


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
def test_list_fits_the_terminal_for_any_title(cli: SessionsCli, columns: int) -> None:
    cli.store(
        *simple_session("20260131_000001_aaaaaa", title=HOSTILE_TEXT * 5),
        *simple_session("20260131_000002_bbbbbb", words=["日本語のとても長いタイトル" * 9]),
        *simple_session("20260131_000003_cccccc", words=["مرحبا بالعالم " * 20], source="x" * 300),
    )
    ran = cli("list", columns=columns)
    assert len(ran.lines) == 4
    for line in ran.lines[1:]:
        assert display_width(line) <= columns
        assert "\x1b" not in line
        assert "\u202e" not in line


def test_truncated_list_gives_a_hint(cli: SessionsCli) -> None:
    cli.store(*(write for n in range(5) for write in simple_session(f"s{n}")))
    assert cli("list", "-n", "4").err == "There are more. Show them: -n 8\n"
    assert cli("list", "-n", "5").err == ""


def test_show_prints_a_readable_transcript(cli: SessionsCli) -> None:
    cli.store(*full_session("20260131_000001_aaaaaa"))
    text = cli("show", "20260131_000001").out
    assert "● terminal ls -la" in text
    assert "✓ total 0 file one file two (3 lines)" in text
    assert "✗ the arguments are not JSON" in text
    assert "Note to Hermes" not in text
    assert "(interrupted)" in text
    assert "[cat.png]" in text
    assert "I should look." not in text
    full = cli("show", "--full", "20260131_000001").out
    assert "I should look." in full
    assert "Note to Hermes" in full
    assert "file two\n" in full
    assert '{"path":' in full


def test_show_raw_is_exact_and_show_is_escaped(cli: SessionsCli) -> None:
    cli.store(*simple_session("s", words=[HOSTILE_TEXT]))
    assert cli("show", "s", "--raw").out == HOSTILE_TEXT + "\n"
    assert "\x1b" not in cli("show", "s").out
    assert "␛[31mred" in cli("show", "s").out


def test_show_json_equals_an_export_line(cli: SessionsCli) -> None:
    cli.store(*full_session("s"))
    assert cli("show", "s", "--json").out == cli("export", "s").out


def test_session_is_found_by_id_prefix_and_title(cli: SessionsCli) -> None:
    cli.store(*simple_session("20260131_a", title="Fix the build"), *simple_session("20260131_b"))
    assert cli("show", "Fix the build", "--json").documents[0]["id"] == "20260131_a"
    assert cli("show", "20260131_b", "--json").documents[0]["id"] == "20260131_b"
    with pytest.raises(NotFound, match="More than one"):
        cli("show", "2026")
    with pytest.raises(NotFound, match="There is no session"):
        cli("show", "nothing like it")


def test_search_shows_matches_in_context(cli: SessionsCli) -> None:
    cli.store(
        *simple_session("s1", words=["a red fish", "blue fish"], title="Fish"),
        *simple_session("s2"),
    )
    ran = cli("search", "fish")
    assert ran.lines[0] == "s1  Fish"
    assert len(ran.lines) == 3, "one entry per session"
    assert " (1 more match):" in ran.lines[1]
    assert ran.lines[2] in {"    a red fish", "    blue fish"}
    only = cli("search", "fish", "--role", "assistant", "--json").documents
    assert [(hit["session"], hit["role"], hit["snippet"]) for hit in only] == [
        ("s1", "assistant", "blue >>>fish<<<")
    ]
    assert "a red \x1b[1;33mfish\x1b[0m" in cli("search", "red", "fish", columns=80).out.replace(
        "\x1b[1;33mred\x1b[0m", "red"
    )
    assert cli("search", '"whale"').err == "No matches.\n"
    with pytest.raises(UsageError):
        cli("search", "  ")


def test_search_names_the_authors_of_messages_that_no_person_wrote(cli: SessionsCli) -> None:
    posted, note = framed("fish for <b>"), "Go on with the fish."
    cli.store(
        *simple_session("s1", words=["about nothing"]),
        AppendMessage("s1", "", User("m1", (Text(posted),), Trust.DATA), NOON),
        *simple_session("s2", words=["about nothing"]),
        AppendMessage("s2", "", User("m2", (Text(note),), Trust.PROGRAM), NOON),
    )
    ran = cli("search", "fish")
    shown = dict(zip(ran.lines[2::3], ran.lines[1::3], strict=True))
    assert shown["    fish for <b>"].endswith(", from elsewhere:")
    assert shown[f"    {note}"].endswith(", note to Hermes:")
    assert cli("search", '"whatever it claims"').err == "No matches.\n"
    assert "  fish for <b>" in cli("show", "s1").lines


def test_search_says_that_results_are_partial(cli: SessionsCli) -> None:
    cli.store(*simple_session("s", words=[f"fish {number}" for number in range(14_000)]))
    ran = cli("search", '"fish 3"')
    assert "    fish 3" in ran.lines
    assert "partial" in ran.err
    assert "hermes sessions optimize" in ran.err
    cli("optimize")
    assert cli("search", '"fish 9999"').err == ""


def test_search_finds_similar_meaning(cli: SessionsCli) -> None:
    texts = ["The cat takes pills.", "Trains are late."]
    cli.store(*simple_session("s1", words=texts))
    # A search of its own waits two seconds for vectors; a busy machine may take longer.
    anyio.run(with_vectors, cli.home / "hermes.db")
    (hit,) = cli("search", "feline", "medication", "--json").documents
    assert hit["snippet"] == "The cat takes pills."
    assert cli("search", '"feline medication"', "--json").documents == []


async def with_vectors(path: Path) -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        async with open_store(path, SystemClock()) as store:
            while not await store.maintenance.build_vectors():
                pass


def test_search_can_be_limited_to_tool_results(cli: SessionsCli) -> None:
    cli.store(*full_session("s"))
    (hit,) = cli("search", "file", "two", "--role", "tool", "--json").documents
    assert hit["role"] == "tool"


def test_empty_sessions_and_unusual_ids_are_shown(cli: SessionsCli) -> None:
    cli.store(OpenSession(Session(id="a\x1b[31m b", started_at=NOON)))
    assert "a␛[31m b" in cli("list").out
    assert "This session has no messages." in cli("show", "a\x1b[31m b").out


@pytest.mark.parametrize(
    "words",
    [
        ("list", "-n", "0"),
        ("list", "-n", "x"),
        ("list", "--since", "whenever"),
        ("list", "--older-than", "3 moons"),
        ("show", "x", "--json", "--raw"),
        ("export", "x", "--format", "pdf"),
        ("nonsense",),
        (),
    ],
)
def test_invalid_arguments_are_rejected(cli: SessionsCli, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        cli(*words)
    assert "Run `hermes sessions" in caught.value.hint
