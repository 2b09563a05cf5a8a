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


def complaint(ran: CliResult, code: int) -> str:
    """What was said, once it is sure that it was said in the proper way."""
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
def test_a_refusal_is_told_with_its_cause_and_is_not_repeated(
    hermes: HermesCli, model: FakeModelProcess, prompt: str, words: str
) -> None:
    said = complaint(hermes("-z", f"{prompt}, please"), 1)
    assert words in said
    assert len(said.splitlines()) == 1
    assert len(model.requests(f"{prompt}, please")) == 1


def test_an_empty_answer_is_never_silence(hermes: HermesCli) -> None:
    assert "empty" in complaint(hermes("-z", "nothing"), 1)


def test_an_agent_that_runs_in_circles_is_stopped(hermes: HermesCli) -> None:
    hermes.configure("tool_loop_guardrails:\n  hard_stop_enabled: true\n")
    assert "Stopped because" in complaint(hermes("-z", "in circles"), 1)


def test_no_connection_is_said_with_the_address(hermes: HermesCli) -> None:
    hermes.configure("agent:\n  api_max_retries: 1\n")
    said = complaint(hermes("-z", "hello", OPENAI_BASE_URL="http://127.0.0.1:1/v1"), 1)
    assert "http://127.0.0.1:1/v1" in said


def test_a_failure_leaves_the_question_behind_for_another_try(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    complaint(hermes("-z", "wrong key EPSILON"), 1)
    assert hermes("-c", "-z", "once more").out == "Plain answer.\n"
    assert "EPSILON" in str(model.requests("once more")[0])


def test_without_any_provider_the_next_step_is_told(hermes: HermesCli) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HERMES_INFERENCE_PROVIDER"):
        del hermes.env[name]
    hermes.env["HERMES_INFERENCE_MODEL"] = ""
    assert "hermes setup" in complaint(hermes("-z", "hello"), 78)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-z", ""), "The prompt is empty."),
        (("-z", "  \n "), "The prompt is empty."),
        ((), "There is nothing to answer."),
        (("--json",), "There is nothing to answer."),
        (("-z", "a", "-q", "b"), "Use either -z or -q, not both."),
        (("-z", "a", "-c", "-r", "x"), "Use either -c or -r, not both."),
        (("-z",), "Argument -z/--oneshot: expected one argument."),
        (("-z", "a", "--max-turns", "0"), "Argument --max-turns: '0' is not a number of steps."),
        (("-z", "a", "--cwd", "/nowhere"), "/nowhere is not a folder."),
        (("-z", "a", "-t", "nope"), "there is no toolset 'nope'"),
        (("-z", "a", "--image", "/nowhere.png"), "/nowhere.png cannot be read"),
        (("-z", "a", "--usage-file", "/nowhere/u.json"), "/nowhere, where --usage-file points"),
        (("chat", "--frobnicate"), "There is no flag --frobnicate."),
        (("frobnicate",), "There is no command 'frobnicate'."),
        (("what", "is", "this"), 'hermes -z "what is this"'),
        (("sesions",), "Did you mean `hermes sessions`?"),
        (("-p",), "-p needs a name."),
    ],
)
def test_a_wrong_command_line_is_explained(
    hermes: HermesCli, words: tuple[str, ...], said: str
) -> None:
    assert said in complaint(hermes(*words), 2)


def test_a_file_that_is_no_picture_is_refused(hermes: HermesCli) -> None:
    (hermes.work / "x.png").write_text("no")
    assert "no picture" in complaint(hermes("-z", "a", "--image", "x.png"), 2)


def test_an_unknown_session_is_named(hermes: HermesCli) -> None:
    assert "no session to continue" in complaint(hermes("-c", "-z", "a"), 1)
    assert "'nope'" in complaint(hermes("-c", "nope", "-z", "a"), 1)
    assert "hermes sessions list" in complaint(hermes("-r", "nope", "-z", "a"), 1)


def test_an_unknown_profile_is_named(hermes: HermesCli) -> None:
    assert "hermes profile create nope" in complaint(hermes("-p", "nope", "-z", "a"), 78)


def test_broken_settings_are_told_with_file_and_line(hermes: HermesCli) -> None:
    hermes.configure("model: mock\nagent:\n  max_turns: [\n")
    assert f"{hermes.home}/config.yaml, line 4, " in complaint(hermes("-z", "a"), 78)
    hermes.configure("model: mock\nagent:\n  max_turns: many\n")
    said = complaint(hermes("-z", "a"), 78)
    assert f"{hermes.home}/config.yaml, line 3, " in said
    assert "max_turns" in said


def test_a_home_that_cannot_be_used_is_told(hermes: HermesCli, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("")
    assert str(file) in complaint(hermes("-z", "a", HERMES_HOME=str(file)), 78)
    assert "/proc/hermes" in complaint(hermes("-z", "a", HERMES_HOME="/proc/hermes"), 78)


def test_a_folder_that_is_gone_is_told(hermes: HermesCli) -> None:
    script = f'mkdir gone && cd gone && rmdir ../gone && exec "{HERMES_PROGRAM}" -z a </dev/null'
    done = subprocess.run(
        ["sh", "-c", script], cwd=hermes.work, env=hermes.env, capture_output=True, check=False,
        timeout=TEST_TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(b"hermes: The current folder does not exist any more.\n")


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
def test_a_reader_who_leaves_early_hears_no_complaint(hermes: HermesCli, words: list[str]) -> None:
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


def test_a_full_disk_is_told(hermes: HermesCli) -> None:
    for words in (["-z", "hello"], ["-q", "hello"], ["-q", "hello", "--json"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [HERMES_PROGRAM, *words], env=hermes.env, stdin=subprocess.DEVNULL, stdout=full,
                stderr=subprocess.PIPE, timeout=TEST_TIMEOUT, check=False,
            )  # fmt: skip
        assert done.returncode == 1
        assert b"The output cannot be written: No space left on device." in done.stderr
        assert b"Traceback" not in done.stderr


def test_closed_streams_do_no_harm(hermes: HermesCli) -> None:
    for words in ("--version", "--help", "-z hello"):
        done = subprocess.run(
            ["sh", "-c", f'exec "{HERMES_PROGRAM}" {words} <&- >&-'], env=hermes.env,
            capture_output=True,
            check=False, timeout=TEST_TIMEOUT,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
