"""Parsing of the command line, dispatch to commands and exit codes."""

import errno
import io
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cli import boundary
from hermes.cli.arguments import build_parser
from hermes.cli.main import VERBS, _take_profile, _take_verb, main
from hermes.schema.errors import UsageError
from support.cases import cases


@cases(
    ("line", "profile", "rest"),
    [
        ("-p work -z hi", "work", "-z hi"),
        ("-z hi -p work", "work", "-z hi"),
        ("sessions list --profile work", "work", "sessions list"),
        ("--profile=work chat", "work", "chat"),
        ("-z hi", None, "-z hi"),
        ("-z -p work", "work", "-z"),
        ("-z hi -- -p work", None, "-z hi -- -p work"),
        ("-p one -p two", "two", ""),
    ],
)
def test_profile_flag_is_accepted_anywhere(line: str, profile: str | None, rest: str) -> None:
    assert _take_profile(line.split()) == (profile, rest.split())


@cases(
    ("line", "verb", "rest"),
    [
        ("", "chat", ""),
        ("-z hi", "chat", "-z hi"),
        ("chat -q hi", "chat", "-q hi"),
        ("-m large chat -q hi", "chat", "-m large -q hi"),
        ("-c", "chat", "-c"),
        ("-c name -z hi", "chat", "-c name -z hi"),
        ("-c sessions", "sessions", "-c"),
        ("-z -hello", "chat", "--oneshot=-hello"),
        ("-q --what?", "chat", "--query=--what?"),
        ("-m -odd -z hi", "chat", "--model=-odd -z hi"),
        ("-z -c", "chat", "-z -c"),
        ("-z --json", "chat", "-z --json"),
        ("-- sessions", "chat", "-- sessions"),
        ("config set agent.max_turns -5", "config", "set agent.max_turns -5"),
        ("-z sessions", "chat", "-z sessions"),
    ],
)
def test_first_non_flag_word_is_the_command(line: str, verb: str, rest: str) -> None:
    assert _take_verb(line.split()) == (verb, rest.split())


@given(st.text(min_size=1))
def test_any_prompt_is_passed_unchanged(prompt: str) -> None:
    parser = build_parser("chat")
    flags = {"-z", "-q", "-m", "-t", "-r", "-c", "-p", "-Q", "-h", "-V", "--"}
    if prompt in flags or (prompt.startswith("--") and prompt[2:].isalpha()):
        return
    verb, rest = _take_verb(["-z", prompt])
    assert verb == "chat"
    assert parser.parse_args(rest).oneshot == prompt


@cases(
    ("words", "hint"),
    [
        (["sesions", "list"], "Did you mean `hermes sessions`?"),
        (["chta"], "Did you mean `hermes chat`?"),
        (["what", "time", "is", "it"], 'To ask a question: hermes -z "what time is it"'),
        (["what time is it"], 'To ask a question: hermes -z "what time is it"'),
        (["xyzzy"], "Run `hermes --help` for the list of commands."),
    ],
)
def test_unknown_command_gives_a_hint(words: list[str], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        _take_verb(words)
    assert caught.value.hint == hint


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["version"], ["-p", "x", "--version"]])
def test_version_is_printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("hermes ")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= set(VERBS)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "version"])
def test_every_command_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", verb]) == 0
    first = capsys.readouterr().out
    assert main([verb, "--help"]) == 0
    assert capsys.readouterr().out == first
    assert first.startswith(f"usage: hermes {verb}")


def test_crash_is_reported_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    (tmp_path / "logs").mkdir()

    def crash() -> int:
        raise ZeroDivisionError("by nothing")

    assert boundary.run_guarded(crash) == 70
    err = capsys.readouterr().err
    assert err.startswith("hermes: internal error: ZeroDivisionError: by nothing\n")
    assert "Traceback" not in err
    assert "in crash" in (tmp_path / "logs/errors.log").read_text()


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (UsageError("no"), 2), (SystemExit(5), 5), (SystemExit("x"), 1)],
)
def test_errors_map_to_exit_codes(error: BaseException, code: int) -> None:
    def verb() -> int:
        raise error

    assert boundary.run_guarded(verb) == code


def test_closed_streams_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)

    def verb() -> int:
        sys.stdout.write("discarded")
        sys.stderr.write("nor this")
        return len(sys.stdin.read())

    assert boundary.run_guarded(verb) == 0
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


def test_unencodable_characters_are_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))

    def verb() -> int:
        sys.stdout.write("grün")
        return 0

    assert boundary.run_guarded(verb) == 0
    assert raw.getvalue() == b"gr\\xfcn"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_not_an_internal_error(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def verb() -> int:
        raise OSError(number, os.strerror(number), "/somewhere/x")

    assert boundary.run_guarded(verb) == boundary.OUTPUT_LOST
    err = capsys.readouterr().err
    assert err.startswith(f"hermes: cannot write /somewhere/x: {os.strerror(number)}\n")
    assert "Free some space" in err
    assert "internal error" not in err


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("--modle x", "--modle"),
        ("--modle x -z hi", "--modle"),
        ("-z hi --modle x", "--modle"),
        ("--modle=x -z hi", "--modle"),
        ("-z hi --modle=x", "--modle"),
    ],
)
def test_misspelled_flag_is_reported_instead_of_its_value(
    line: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert f"Unknown flag: {flag}." in err
    assert "Did you mean --model?" in err


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["-z", "hi", "--file", "x"], "Unknown flag: --file.", "--help` for usage."),
        (["kanban", "nosuch"], "Unknown action: 'nosuch'.", "--help` for the list of actions."),
        (["send", "irc:ann", "hello"], "Unrecognized arguments: hello.", "mean --to irc:ann?"),
        (["send", "hello", "ann"], "Unrecognized arguments: ann.", "Quote the message."),
        (["auth", "remove", "openai"], "required: KEY.", "--help` for usage."),
    ],
)
def test_usage_errors_have_a_short_hint(
    words: list[str], says: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.endswith(f"{hint}\n")


def test_unknown_command_after_known_flag_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--quiet", "sesions"]) == 2
    assert "Unknown command: 'sesions'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["sessions", "memory", "skills", "tools", "config", "gateway"])
def test_command_without_action_lists_its_actions(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb]) == 2
    alone = capsys.readouterr().err
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    names = [line.split()[0] for line in alone.splitlines()[1:-1]]
    assert len(names) > 2
    assert all(f"\n    {name}" in shown for name in names)


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [("gateway statsu", "status"), ("sessions list --jsn", "--json"), ("logs agnt", "agent")],
)
def test_misspelled_action_gets_a_suggestion(
    line: str, suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert f"Did you mean {suggestion}?" in capsys.readouterr().err


@cases(
    ("line", "why"),
    [
        ("dashboard --port 99999", "--port: expected a whole number from 0 to 65535."),
        ("dashboard --port -1", "--port: expected a whole number from 0 to 65535."),
        ("memory log -n -1", "--number: expected a whole number of at least 1."),
        ("skills log -n 99999999999999999999", "expected a whole number of at least 1."),
        ("send --timeout nan hi", "--timeout: expected a number of seconds, 0 or more."),
        ("send --timeout -1 hi", "--timeout: expected a number of seconds, 0 or more."),
        ("send --timeout inf hi", "--timeout: expected a number of seconds, 0 or more."),
    ],
)
def test_impossible_number_is_refused(line: str, why: str) -> None:
    verb, *words = line.split()
    with pytest.raises(UsageError, match=why):
        build_parser(verb).parse_args(words)
