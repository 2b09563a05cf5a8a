"""One prompt, one answer: `hermes -z`, `-q`, pipes, `--json`, sessions; all as real processes."""

import base64
import json
import struct
import subprocess
import zlib
from pathlib import Path

import msgspec
import pytest

from hermes.schema.events import Event, MessageAdded, Outcome, RunEnded, RunStarted
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script, TokenCounts
from support.cli_process import (
    HERMES_PROGRAM,
    TEST_TIMEOUT,
    FakeModelProcess,
    HermesCli,
    exit_status,
    fake_model_process,
    wait_for_data,
    without_durations,
)

UNICODE = "Grüße, 世界 🙂 \u202eabc"
LONG = "word " * 400_000
ECHO = Call("terminal", {"command": "echo from-tool"})
SCRIPT = Script(
    rules=[
        Rule("unicode", [Reply(UNICODE, chunk=1)]),
        Rule("at length", [Reply(LONG, chunk=0)]),
        Rule("tool please", [Reply("Looking.", [ECHO]), Reply("It says from-tool.")]),
        Rule("two lines", [Reply("\n\nfirst\nsecond\n\n")]),
        Rule("priced", [Reply("Cheap.", usage=TokenCounts(1000, 200, 400, 50))]),
        Rule("for ever", [Reply("", [Call("terminal", {"command": "true"})])]),
        Rule("escape", [Reply("red \x1b[31malert\x07")]),
    ],
    default=Reply("Plain answer."),
    models=("mock",),
)  # fmt: skip


def last_user(request: dict) -> str:
    return [one for one in request["messages"] if one["role"] == "user"][-1]["content"]


def png(width: int = 2, height: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))
    head = struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def test_oneshot_prints_only_the_answer(hermes: HermesCli) -> None:
    assert hermes("-z", "hello") == (0, "Plain answer.\n", "")


def test_answer_ends_in_one_line_break(hermes: HermesCli) -> None:
    assert hermes("-z", "two lines").out == "\n\nfirst\nsecond\n"


def test_query_shows_steps_and_session_id(hermes: HermesCli) -> None:
    ran = hermes("-q", "tool please")
    assert ran.code == 0
    assert without_durations(ran.out) == (
        "Looking.\n● terminal echo from-tool\n  ✓ from-tool\nIt says from-tool.\n"
    )  # fmt: skip
    (session,) = hermes("sessions", "list", "--json").events
    assert ran.err == f"session_id: {session['id']}\n"


def test_quiet_prints_only_the_answer_with_tools(hermes: HermesCli) -> None:
    hermes.configure("modle: gpt\ntoolsets: [hermes-cli, nonsense]\n")
    ran = hermes("chat", "-q", "tool please", "-Q")
    assert (ran.code, ran.out) == (0, "It says from-tool.\n")
    assert "hermes: warning: " in ran.err
    assert "modle" in ran.err
    assert "nonsense" in ran.err
    assert "session_id: " in ran.err


def test_quiet_prints_only_the_answer_after_a_retry(tmp_path: Path) -> None:
    replies = [Reply("half an", fault=Fault("cut", after=1)), Reply("Whole.")]
    with fake_model_process(tmp_path / "model", Script(replies=replies)) as model:
        ran = HermesCli(tmp_path, model.url)("-q", "hello", "-Q")
        assert (ran.code, ran.out) == (0, "Whole.\n")
        assert len(model.requests()) == 2


def test_query_shows_retries(tmp_path: Path) -> None:
    limited = Fault("status", named="rate_limited", headers={"retry-after-ms": "20"})
    with fake_model_process(
        tmp_path / "model", Script(replies=[Reply(fault=limited), Reply("Done.")])
    ) as model:
        ran = HermesCli(tmp_path, model.url)("-q", "hello")
    assert ran.code == 0
    first, *rest = ran.out.splitlines()
    assert "too many requests" in first.lower() or "rate limit" in first.lower()
    assert rest[-1] == "Done."


def test_piped_text_is_added_to_the_prompt(hermes: HermesCli, model: FakeModelProcess) -> None:
    assert hermes("-z", "sum up joined", stdin=b"the text\n").out == "Plain answer.\n"
    assert last_user(model.requests("sum up joined")[0]) == "sum up joined\n\nthe text\n"
    assert hermes(stdin="nur Röhre".encode()).out == "Plain answer.\n"
    assert last_user(model.requests("nur R")[0]) == "nur Röhre"


def test_file_as_stdin_is_read(hermes: HermesCli, model: FakeModelProcess) -> None:
    file = hermes.work / "in.txt"
    file.write_text("out of a file")
    with file.open() as stdin:
        done = subprocess.run(
            [HERMES_PROGRAM, "-z", "read it"], stdin=stdin, env=hermes.env, timeout=TEST_TIMEOUT,
            check=True,
            capture_output=True,
        )  # fmt: skip
    assert done.stdout == b"Plain answer.\n"
    assert last_user(model.requests("out of a file")[0]) == "read it\n\nout of a file"


def test_prompt_without_stdin_is_unchanged(hermes: HermesCli, model: FakeModelProcess) -> None:
    closed = f'exec "{HERMES_PROGRAM}" -z "with closed stdin" <&-'
    done = subprocess.run(
        ["sh", "-c", closed], env=hermes.env, cwd=hermes.work, capture_output=True, check=False,
        timeout=TEST_TIMEOUT,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Plain answer.\n", b"")
    assert last_user(model.requests("with closed stdin")[0]) == "with closed stdin"


def test_waiting_for_an_open_pipe_is_announced(hermes: HermesCli) -> None:
    command = [HERMES_PROGRAM, "-z", "hello"]
    with subprocess.Popen(
        command, env=hermes.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert b"waiting for the end of stdin" in wait_for_data(process.stderr.fileno())
        out, err = process.communicate(b"late", timeout=TEST_TIMEOUT)
    assert (process.returncode, out, err) == (0, b"Plain answer.\n", b"")


def test_too_much_piped_text_is_rejected(hermes: HermesCli) -> None:
    ran = hermes("-z", "hello", stdin=b"x" * 10_000_001)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("hermes: The piped input is larger than 10 MB.\n  ")


@pytest.mark.parametrize("prompt", ["-hello", "- a list", "--foo=bar"])
def test_prompt_may_begin_with_a_dash(
    hermes: HermesCli, model: FakeModelProcess, prompt: str
) -> None:
    assert hermes("-z", prompt).out == "Plain answer.\n"
    assert any(last_user(one) == prompt for one in model.requests(prompt))


def test_unicode_prompt_is_unchanged(hermes: HermesCli, model: FakeModelProcess) -> None:
    prompt = "unicode ü 世界 🙂 'quoted' \"twice\" $HOME `x` \\n"
    ran = hermes("-z", prompt)
    assert (ran.code, ran.out, ran.err) == (0, UNICODE + "\n", "")
    assert last_user(model.requests("unicode")[-1]) == prompt


def test_invalid_utf8_is_replaced(hermes: HermesCli, model: FakeModelProcess) -> None:
    assert hermes(b"-z", b"raw \xff byte", stdin=b"\xfe too").code == 0
    assert last_user(model.requests("raw ")[0]) == "raw \ufffd byte\n\n\ufffd too"


def test_c_locale_works(hermes: HermesCli) -> None:
    ran = hermes("-q", "unicode, please", LC_ALL="C", LANG="C")
    assert (ran.code, ran.out) == (0, "Grüße, 世界 🙂 �abc\n")


def test_unencodable_output_is_escaped(hermes: HermesCli) -> None:
    done = hermes.raw("-z", "unicode", PYTHONIOENCODING="cp1252")
    assert done.returncode == 0
    assert done.stdout == b"Gr\xfc\xdfe, \\u4e16\\u754c \\U0001f642 \\u202eabc\n"
    work = hermes.raw("-q", "tool please", PYTHONIOENCODING="cp1252")
    assert work.returncode == 0
    shown = without_durations(work.stdout.decode("cp1252"))
    assert "\\u25cf terminal echo from-tool\n  \\u2713 from-tool\n" in shown


def test_long_answer_is_complete(hermes: HermesCli) -> None:
    ran = hermes("-z", "at length")
    assert ran.code == 0
    assert ran.out == LONG + "\n"


def test_pipe_gets_raw_text_without_colours(hermes: HermesCli) -> None:
    assert hermes("-z", "escape").out == "red \x1b[31malert\x07\n"
    assert "\x1b" not in hermes("-q", "tool please").out


def test_answer_is_escaped_on_a_terminal(hermes: HermesCli) -> None:
    for words in (("-z", "escape"), ("-q", "escape")):
        with hermes.terminal(*words) as child:
            child.expect_exact("red ␛[31malert␇")
            assert exit_status(child) == 0


def test_no_color_disables_colours(hermes: HermesCli) -> None:
    with hermes.terminal("-q", "tool please") as child:
        child.expect_exact("\x1b[36m●\x1b[0m terminal echo from-tool")
        assert exit_status(child) == 0
    with hermes.terminal("-q", "tool please", NO_COLOR="1") as child:
        child.expect_exact("● terminal echo from-tool")
        child.expect_exact("It says from-tool.")
        assert "\x1b[3" not in child.before
        assert exit_status(child) == 0


def test_json_lines_are_events_ending_with_run_ended(hermes: HermesCli) -> None:
    ran = hermes("-q", "tool please", "--json")
    assert (ran.code, ran.err) == (0, "")
    events = [msgspec.json.decode(line, type=Event) for line in ran.out.splitlines()]
    assert isinstance(events[0], RunStarted)
    assert [event for event in events if isinstance(event, RunEnded)] == [events[-1]]
    assert events[-1].outcome is Outcome.DONE
    assert events[-1].steps == 2
    messages = [type(event.message).__name__ for event in events if isinstance(event, MessageAdded)]
    assert messages == ["User", "Assistant", "Result", "Assistant"]


def test_json_has_a_final_event_on_startup_failure(hermes: HermesCli) -> None:
    ran = hermes("-q", "hello", "--json", "--provider", "nobody")
    assert ran.code == 78
    (ended,) = ran.events
    assert (ended["type"], ended["outcome"], ended["code"]) == ("run_ended", "failed", "config")
    assert "nobody" in ended["reason"]
    assert "nobody" in ran.err


def test_session_is_continued_with_c_and_r(hermes: HermesCli, model: FakeModelProcess) -> None:
    first = hermes("-q", "remember ALPHA-1").err.split()[1]
    hermes("-z", "something else")
    assert hermes("-z", "back to r", "-r", first).code == 0
    words = [one["content"] for one in model.requests("back to r")[0]["messages"][1:]]
    assert words == ["remember ALPHA-1", "Plain answer.", "back to r"]
    assert hermes("-c", "-z", "and on with c").code == 0
    assert "ALPHA-1" in json.dumps(model.requests("and on with c")[0])
    hermes("sessions", "rename", first, "My title")
    assert hermes("-c", "My title", "-z", "by its title").code == 0
    assert "ALPHA-1" in json.dumps(model.requests("by its title")[0])
    assert hermes("-c", first[:-2], "-z", "by a part").code == 0


def test_system_prompt_of_a_session_stays_identical(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    hermes("-z", "stable BETA-1")
    hermes("-c", "-z", "stable again")
    first, second = model.requests("stable BETA-1")
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["tools"] == first["tools"]


def test_session_continues_in_its_own_folder(hermes: HermesCli, tmp_path: Path) -> None:
    hermes("-z", "hello")
    other = tmp_path / "other"
    other.mkdir()
    (session,) = hermes("sessions", "list", "--json").events
    assert session["cwd"] == str(hermes.work)
    hermes.work.rename(tmp_path / "moved")
    hermes.work = other
    ran = hermes("-c", "-z", "hello")
    assert ran.code == 0
    assert (
        ran.err
        == f"hermes: {tmp_path / 'work'} no longer exists; the session continues in {other}.\n"
    )
    hermes("-c", "--cwd", str(tmp_path), "-z", "hello")
    (session,) = hermes("sessions", "list", "--json").events
    assert session["cwd"] == str(tmp_path)


def test_usage_file_contains_tokens_and_names(hermes: HermesCli, tmp_path: Path) -> None:
    file = tmp_path / "usage.json"
    ran = hermes("-z", "priced", "--usage-file", str(file))
    assert (ran.code, ran.out, ran.err) == (0, "Cheap.\n", "")
    report = json.loads(file.read_text())
    (session,) = hermes("sessions", "list", "--json").events
    assert report == {
        "session_id": session["id"],
        "model": "mock",
        "provider": "openai",
        "input_tokens": 1000,
        "output_tokens": 200,
        "cache_read_tokens": 400,
        "cache_write_tokens": 0,
        "reasoning_tokens": 50,
        "total_tokens": 1200,
        "api_calls": 1,
        "estimated_cost_usd": None,
        "cost_status": "unknown",
        "cost_source": "catalog",
        "completed": True,
        "failed": False,
        "service_tier": "",
    }


def test_usage_file_contains_cost(hermes: HermesCli, tmp_path: Path) -> None:
    file = tmp_path / "usage.json"
    hermes("-z", "priced", "-m", "gpt-4o-mini", "--usage-file", str(file))
    report = json.loads(file.read_text())
    assert report["cost_status"] == "estimated"
    assert 0 < report["estimated_cost_usd"] < 0.01


def test_step_limit_has_its_own_exit_code(hermes: HermesCli) -> None:
    ran = hermes("-z", "for ever", "--max-turns", "2")
    assert ran.code == 3
    assert "limit of 2 steps" in ran.err


def test_image_reaches_the_model_unchanged(hermes: HermesCli, model: FakeModelProcess) -> None:
    picture = png()
    (hermes.work / "dot.png").write_bytes(picture)
    assert hermes("-q", "what is on this dot", "--image", "dot.png", "-Q").code == 0
    parts = last_user(model.requests("what is on this dot")[0])
    assert [part["type"] for part in parts] == ["text", "image_url"]
    head, _, data = parts[1]["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data) == picture


def test_profile_flag_works_anywhere(hermes: HermesCli) -> None:
    assert hermes("profile", "create", "work").code == 0
    for words in ("-p work -z hi", "-z hi --profile work", "chat -q hi -Q --profile=work"):
        assert hermes(*words.split()).out == "Plain answer.\n"
    assert len(hermes("sessions", "list", "--json", "-p", "work").events) == 3
    assert hermes("sessions", "list", "--json").events == []


def test_flags_select_model_and_tools(hermes: HermesCli, model: FakeModelProcess) -> None:
    hermes("-z", "choose GAMMA", "-m", "another", "-t", "file, todo")
    (request,) = model.requests("choose GAMMA")
    assert request["model"] == "another"
    names = {tool["function"]["name"] for tool in request["tools"]}
    assert names == {"read_file", "write_file", "patch", "search_files", "todo"}


def test_secrets_are_not_sent_to_the_model(hermes: HermesCli, model: FakeModelProcess) -> None:
    hermes("-z", "keep DELTA secret")
    (request,) = model.requests("keep DELTA secret")
    assert "sk-test-0123456789" not in json.dumps(request)


def test_turn_is_logged_with_its_session(hermes: HermesCli) -> None:
    assert hermes("-z", "hello").out == "Plain answer.\n"
    (line,) = hermes("logs", "--session", "hello").out.splitlines()
    session = hermes("sessions", "list").out.splitlines()[1].split()[0]
    assert f"({session}) turn run_" in line
    assert ": done, 1 step, " in line
    assert "hello" not in line
    assert hermes("logs", "errors").out == ""
