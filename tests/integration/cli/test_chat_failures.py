"""Everything that can go wrong with one prompt: one sentence, one exit code, no traceback."""

import os
import subprocess
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, CliResult, FakeModelProcess, HermesCli

MANY = "".join(f"line {number}\n" for number in range(50_000))
SCRIPT = Script(
    rules=[
        Rule("once more", [Reply("Plain answer.")]),
        Rule("wrong key", [Reply(fault=Fault("status", named="unauthorized"))]),
        Rule("no credit", [Reply(fault=Fault("status", named="out_of_credit"))]),
        Rule("no such model", [Reply(fault=Fault("status", named="model_not_found"))]),
        Rule("not allowed", [Reply(fault=Fault("status", named="policy"))]),
        Rule("nothing", [Reply("")]),
        Rule("many lines", [Reply(MANY, chunk=0), Reply("More.")]),
        Rule("many events", [Reply("word " * 20_000, chunk=5)]),
        Rule("in circles", [Reply("", [Call("read_file", {"path": "missing"})])]),
    ],
    default=Reply("Plain answer."),
)


def error_message(ran: CliResult, code: int) -> str:
    """The error message, after checking the exit code and format."""
    assert ran.code == code, ran
    assert "Traceback" not in ran.err
    assert ran.err.startswith("hermes: ")
    assert ran.out == ""
    return ran.err


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("wrong key", "key"),
        ("no credit", "credit"),
        ("no such model", "model"),
        ("not allowed", "declined"),
    ],
)
def test_provider_refusal_is_reported_and_not_retried(
    hermes: HermesCli, model: FakeModelProcess, prompt: str, words: str
) -> None:
    message = error_message(hermes("-z", f"{prompt}, please"), 1)
    assert words in message
    assert len(message.splitlines()) == 1
    assert len(model.requests(f"{prompt}, please")) == 1


def test_empty_answer_is_reported(hermes: HermesCli) -> None:
    assert "empty" in error_message(hermes("-z", "nothing"), 1)


def test_looping_agent_is_stopped(hermes: HermesCli) -> None:
    hermes.configure("tool_loop_guardrails:\n  hard_stop_enabled: true\n")
    assert "Stopped because" in error_message(hermes("-z", "in circles"), 1)


def test_connection_error_names_the_address(hermes: HermesCli) -> None:
    hermes.configure("agent:\n  api_max_retries: 1\n")
    message = error_message(hermes("-z", "hello", OPENAI_BASE_URL="http://127.0.0.1:1/v1"), 1)
    assert "http://127.0.0.1:1/v1" in message


def test_question_is_kept_after_a_failure(hermes: HermesCli, model: FakeModelProcess) -> None:
    error_message(hermes("-z", "wrong key EPSILON"), 1)
    assert hermes("-c", "-z", "once more").out == "Plain answer.\n"
    assert "EPSILON" in str(model.requests("once more")[0])


def test_missing_provider_gives_a_hint(hermes: HermesCli) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HERMES_INFERENCE_PROVIDER"):
        del hermes.env[name]
    hermes.env["HERMES_INFERENCE_MODEL"] = ""
    assert "hermes setup" in error_message(hermes("-z", "hello"), 78)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-z", ""), "The prompt is empty."),
        (("-z", "  \n "), "The prompt is empty."),
        ((), "No prompt given."),
        (("--json",), "No prompt given."),
        (("-z", "a", "-q", "b"), "Use either -z or -q, not both."),
        (("-z", "a", "-c", "-r", "x"), "Use either -c or -r, not both."),
        (("-z",), "Argument -z/--oneshot: expected one argument."),
        (("-z", "a", "--max-turns", "0"), "Argument --max-turns: '0' is not a number of steps."),
        (("-z", "a", "--cwd", "/nowhere"), "/nowhere is not a folder."),
        (("-z", "a", "-t", "nope"), "Unknown toolset: 'nope'."),
        (("-z", "a", "--image", "/nowhere.png"), "Cannot read /nowhere.png"),
        (("-z", "a", "--usage-file", "/nowhere/u.json"), "/nowhere is not a folder"),
        (("chat", "--frobnicate"), "Unknown flag: --frobnicate."),
        (("frobnicate",), "Unknown command: 'frobnicate'."),
        (("what", "is", "this"), 'hermes -z "what is this"'),
        (("sesions",), "Did you mean `hermes sessions`?"),
        (("-p",), "-p needs a name."),
        (
            ("sessions", "list", "--limit", "-1"),
            "Argument -n/--limit: expected a whole number of at least 1.",
        ),
        (("model", "--provider", "foo"), "Unknown provider: 'foo'."),
        (("model", "--provider", "anthropic"), "anthropic cannot be reached."),
    ],
)
def test_usage_errors_are_explained(
    hermes: HermesCli, words: tuple[str, ...], message: str
) -> None:
    assert message in error_message(hermes(*words), 2)


def test_invalid_image_is_rejected(hermes: HermesCli) -> None:
    (hermes.work / "x.png").write_text("no")
    assert "is not an image" in error_message(hermes("-z", "a", "--image", "x.png"), 2)


def test_unknown_session_is_reported(hermes: HermesCli) -> None:
    assert "no session to continue" in error_message(hermes("-c", "-z", "a"), 1)
    assert "'nope'" in error_message(hermes("-c", "nope", "-z", "a"), 1)
    assert "hermes sessions list" in error_message(hermes("-r", "nope", "-z", "a"), 1)


def test_unknown_profile_is_reported(hermes: HermesCli) -> None:
    assert "hermes profile create nope" in error_message(hermes("-p", "nope", "-z", "a"), 78)


def test_invalid_settings_are_reported_with_file_and_line(hermes: HermesCli) -> None:
    hermes.configure("model: mock\nagent:\n  max_turns: [\n")
    assert f"{hermes.home}/config.yaml, line 4, " in error_message(hermes("-z", "a"), 78)
    hermes.configure("model: mock\nagent:\n  max_turns: many\n")
    message = error_message(hermes("-z", "a"), 78)
    assert f"{hermes.home}/config.yaml, line 3, " in message
    assert "max_turns" in message


def test_unusable_home_is_reported(hermes: HermesCli, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("")
    assert str(file) in error_message(hermes("-z", "a", HERMES_HOME=str(file)), 78)
    assert "/proc/hermes" in error_message(hermes("-z", "a", HERMES_HOME="/proc/hermes"), 78)


def test_deleted_working_directory_is_reported(hermes: HermesCli) -> None:
    script = f'mkdir gone && cd gone && rmdir ../gone && exec "{HERMES_PROGRAM}" -z a </dev/null'
    done = subprocess.run(
        ["sh", "-c", script], cwd=hermes.work, env=hermes.env, capture_output=True, check=False,
        timeout=TEST_TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(b"hermes: The working directory no longer exists.\n")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["chat", "--help"],
        ["-z", "many lines"],
        ["-q", "many lines"],
        ["-q", "many events", "--json"],
    ],
)
def test_closed_pipe_causes_no_error_message(hermes: HermesCli, words: list[str]) -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(
        [HERMES_PROGRAM, *words], env=hermes.env, stdin=subprocess.DEVNULL, stdout=writer,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        os.close(writer)
        os.close(reader)
        _, err = process.communicate(timeout=TEST_TIMEOUT)
    assert process.returncode == 141
    assert all(line.startswith(b"session_id: ") for line in err.splitlines())


def test_full_disk_is_reported(hermes: HermesCli) -> None:
    for words in (["-z", "hello"], ["-q", "hello"], ["-q", "hello", "--json"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [HERMES_PROGRAM, *words], env=hermes.env, stdin=subprocess.DEVNULL, stdout=full,
                stderr=subprocess.PIPE, timeout=TEST_TIMEOUT, check=False,
            )  # fmt: skip
        assert done.returncode == 1
        assert b"Cannot write the output: No space left on device." in done.stderr
        assert b"Traceback" not in done.stderr


def test_closed_streams_are_tolerated(hermes: HermesCli) -> None:
    for words in ("--version", "--help", "-z hello"):
        done = subprocess.run(
            ["sh", "-c", f'exec "{HERMES_PROGRAM}" {words} <&- >&-'], env=hermes.env,
            capture_output=True,
            check=False, timeout=TEST_TIMEOUT,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
